"""Anthropic's interface `POST /v1/messages`, for text and tools."""
