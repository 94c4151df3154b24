"""From scores to a token: parameters, the draw itself, penalties, and the strings that end an answer."""
