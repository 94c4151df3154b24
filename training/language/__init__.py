"""Templates, words and their grammar."""
