"""Servers, and what their clients do: the contestants of `bench serving`."""
