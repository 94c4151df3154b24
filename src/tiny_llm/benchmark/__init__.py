"""How fast a model reads and writes: the same random requests for everybody, one at a time, in turn."""
