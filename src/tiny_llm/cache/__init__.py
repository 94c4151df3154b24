"""Keys and values of the tokens that a model has processed, so that each token is computed once."""
