"""Measurements of tiny-llm against its peers and against the hardware."""
