"""Keys and values of the tokens a model has seen, kept so that each token is calculated once."""

from .base import TinyKvCache
from .batching import BatchingKvCache
from .full import TinyKvFullCache

__all__ = ["BatchingKvCache", "TinyKvCache", "TinyKvFullCache"]
