"""What the readable layers are completed by: parts of them, and their fast forms."""
