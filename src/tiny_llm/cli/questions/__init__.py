"""The questions of `batch`, built in or from a file that is checked line by line, and its file of answers."""
