"""The door to the paged cache: a pool of pages, a request's pages in it, and what attention reads of them."""

from .cache.base import PagedKvMetadata
from .cache.paged import TinyKvPagedCache
from .cache.pool import TinyKvPagedPool

__all__ = ["PagedKvMetadata", "TinyKvPagedCache", "TinyKvPagedPool"]
