"""A block of a small model, its caches, and two ways to run it: one native operation, or layer by layer."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from tiny_llm.cache.base import Mask
from tiny_llm.kv_cache import TinyKvCache, TinyKvFullCache
from tiny_llm.models import cpu_block, dispatch_model

from ..cases import normal
from .checkpoints import checkpoint

HIDDEN = 128


def block_of(family: str = "qwen2", dtype: mx.Dtype = mx.float32, flash: bool = True, **options: Any) -> Any:
    weights = checkpoint(family, layers=1, max_position_embeddings=4096, **options)
    return dispatch_model("a folder", weights, 2, enable_flash_attn=flash, dtype=dtype).layers_inner[0]


def step(
    block: Any, x: mx.array, cache: TinyKvCache, offset: int | list[int], mask: Mask = "causal"
) -> tuple[mx.array, bool]:
    """The result of a block, and whether the native operation computed it."""
    native = cpu_block.run_on_cpu(block, x, offset, cache, mask, False)
    if native is not None:
        return native, True
    return by_layers(block, x, cache, offset, mask), False


def by_layers(
    block: Any, x: mx.array, cache: TinyKvCache, offset: int | list[int], mask: Mask = "causal"
) -> mx.array:
    hidden = block.self_attn.forward(x, offset, cache, mask, norm=block.input_layernorm, residual=x)
    y: mx.array = block.mlp(hidden, norm=block.post_attention_layernorm, residual=hidden)
    return y


def full(block: Any, length: int, dtype: mx.Dtype = mx.float32, rows: int = 1) -> TinyKvFullCache:
    """A cache with `length` tokens."""
    cache = TinyKvFullCache()
    if length:
        shape = (rows, block.num_kv_heads, length, block.self_attn.head_dim)
        cache.update_and_fetch(*(normal(*shape, dtype=dtype, seed=seed) for seed in (7, 8)))
    return cache
