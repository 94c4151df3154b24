"""The embedded model: how its data is made, how it is trained, exported and judged."""
