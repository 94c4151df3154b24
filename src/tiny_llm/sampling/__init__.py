"""From logits to a token: parameters, the draw, penalties, and stop strings."""
