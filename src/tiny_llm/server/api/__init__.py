"""Requests and answers of OpenAI's, Anthropic's and Ollama's interfaces: fields, checks, and JSON."""
