"""Answers of an exported model, and the checks that judge them."""
