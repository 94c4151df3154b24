"""Caches of keys and values under the names of the course."""

from .cache.base import TinyKvCache
from .cache.batching import BatchingKvCache
from .cache.full import TinyKvFullCache

__all__ = ["BatchingKvCache", "TinyKvCache", "TinyKvFullCache"]
