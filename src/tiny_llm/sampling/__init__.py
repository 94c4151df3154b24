"""From logits to a token: parameters, the draw, penalties, grammars, rows of a batch, stop strings."""
