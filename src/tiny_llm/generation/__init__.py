"""From prompts to answers: tokens, speculative decoding, batches, and streams of text."""
