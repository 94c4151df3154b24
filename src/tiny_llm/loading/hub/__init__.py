"""Models of the Hugging Face hub: the cache on this machine, and downloads into it."""
