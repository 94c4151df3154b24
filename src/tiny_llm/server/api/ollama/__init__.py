"""Ollama's interface below `/api`, for desktop applications: chat, generate, and what there is of models."""
