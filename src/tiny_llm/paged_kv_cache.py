"""Paged caches of keys and values under the names of the course."""

from .cache.base import PagedKvMetadata
from .cache.paged import TinyKvPagedCache
from .cache.pool import TinyKvPagedPool

__all__ = ["PagedKvMetadata", "TinyKvPagedCache", "TinyKvPagedPool"]
