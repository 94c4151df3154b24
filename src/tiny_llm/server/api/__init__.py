"""Requests and answers of OpenAI's interface: fields, checks, and JSON."""
