"""Conversations: messages written as a prompt, turns that fit the context, and `ChatSession`."""
