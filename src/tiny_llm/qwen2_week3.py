"""Qwen2 of week 3: attention reads keys and values in the pages of a pool that all layers share."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from .kv_cache import TinyKvCache
from .kv_cache.base import Mask
from .paged_kv_cache import TinyKvPagedCache, TinyKvPagedPool
from .stages import WEEK3
from .transformer.layers import MLP
from .transformer.positions import Offset
from .transformer.qwen2 import Qwen2Attention, Qwen2Block, Qwen2Model


class Qwen2MultiHeadAttention(Qwen2Attention):
    """Attention of the new tokens to all that the pages of the cache then hold."""

    ops = WEEK3

    def __call__(self, x: mx.array, offsets: Offset, cache: TinyKvCache, mask: Mask = None) -> mx.array:
        """[B, L, hidden] -> the same; row b holds the tokens from position offsets[b] on."""
        return self.forward(x, offsets, cache, mask)


class Qwen2MLP(MLP):
    """The feed-forward layer on packed weights."""


class Qwen2TransformerBlock(Qwen2Block):
    """One layer of the model."""

    attention = Qwen2MultiHeadAttention
    feed_forward = Qwen2MLP

    def __call__(self, x: mx.array, offset: Offset, cache: TinyKvCache, mask: Mask = None) -> mx.array:
        """[B, L, hidden] -> the same; row b holds the tokens from position offset[b] on."""
        return self.forward(x, offset, cache, mask)


class Qwen2ModelWeek3(Qwen2Model):
    """All requests and all layers take their pages from `page_pool`."""

    ops = WEEK3
    block = Qwen2TransformerBlock

    def __init__(self, mlx_model: Any, page_size: int = 128, *, dtype: mx.Dtype | None = None):
        super().__init__(mlx_model, dtype)
        self.page_size = page_size
        self.page_pool = TinyKvPagedPool(page_size)

    def create_kv_cache(self) -> list[TinyKvPagedCache]:
        """One empty cache per layer, for one request."""
        return [TinyKvPagedCache(self.page_pool) for _ in range(self.num_hidden_layers)]

    def __call__(self, inputs: mx.array, offset: Offset, cache: Sequence[TinyKvCache]) -> mx.array:
        """Token ids [B, L], of which offset[b] are in the cache already -> logits [B, L, V]."""
        return self.forward(inputs, offset, cache)
