"""The former place of `Deadline`, which moved to `waiting.py`."""

from .waiting import Deadline

__all__ = ["Deadline"]
