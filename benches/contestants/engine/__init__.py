"""Contestants of `bench engine`, in processes of their own."""
