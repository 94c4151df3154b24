"""Checks of arguments, by type and by shape; each raises an error that names the argument."""
