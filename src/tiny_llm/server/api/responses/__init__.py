"""OpenAI's interface `POST /v1/responses`, for text and functions."""
