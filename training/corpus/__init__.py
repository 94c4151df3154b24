"""The conversations to learn from: their mixture, what is held out, and their rows of tokens."""
