"""Short stories on a given subject: who is in them, what happens, and how they are asked for."""
