"""Weights: the tensors that a model needs, the files that have them, and the arrays in memory."""
