"""The kinds of conversation, a module each."""
