"""Conversations with an `LLM`: turns that fit the context, and `ChatSession`."""
