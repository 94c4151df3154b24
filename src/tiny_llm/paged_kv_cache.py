"""The door to the paged cache: a pool of pages, a request's pages in it, and what attention reads of them."""

from .kv_cache.base import PagedKvMetadata
from .kv_cache.paged import TinyKvPagedCache
from .kv_cache.pool import TinyKvPagedPool

__all__ = ["PagedKvMetadata", "TinyKvPagedCache", "TinyKvPagedPool"]
