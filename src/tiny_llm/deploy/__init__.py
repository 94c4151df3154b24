"""Replicas of the server behind one address. Only this package needs Ray, the extra `ray`."""
