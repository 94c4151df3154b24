"""Whole models side by side: each contestant in a process of its own, all on the same weights."""
