"""The commands of `tiny-llm` that measure and show."""
