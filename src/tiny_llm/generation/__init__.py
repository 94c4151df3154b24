"""From requests to answers: sources of tokens, speculation, and the stream of text."""
