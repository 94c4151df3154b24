"""Week 3: paged attention, with one pool of pages for all layers."""

from typing import Any

import mlx.core as mx

from ..cache.paged import TinyKvPagedCache
from ..cache.pool import TinyKvPagedPool
from ..models.model import Transformer
from .stages import WEEK3


class Week3Model(Transformer):
    """All requests and layers allocate their pages from `page_pool`."""

    ops = WEEK3

    def __init__(self, mlx_model: Any, page_size: int = 128, *, dtype: mx.Dtype | None = None):
        super().__init__(mlx_model, dtype)
        self.page_size = page_size
        self.page_pool = TinyKvPagedPool(page_size)

    def create_kv_cache(self) -> list[TinyKvPagedCache]:
        """One empty cache per layer, for one request."""
        return [TinyKvPagedCache(self.page_pool) for _ in range(self.num_hidden_layers)]
