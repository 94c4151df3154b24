"""The Python side of the native operations: arguments, dense and paged attention, merging, `explain`."""
