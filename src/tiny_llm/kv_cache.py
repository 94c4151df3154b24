"""Keys and values of the tokens a model has seen, kept so that each token is calculated once."""

from .cache.base import TinyKvCache
from .cache.batching import BatchingKvCache
from .cache.full import TinyKvFullCache

__all__ = ["BatchingKvCache", "TinyKvCache", "TinyKvFullCache"]
