"""The layers of tiny_llm.nn with small sizes: what the tests of this folder run over."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from tiny_llm.nn import (
    BaseAttention,
    FlashAttentionV1,
    FlashAttentionV2,
    FusedFlashAttention,
    GroupedQueryAttention,
    MaskedAttention,
    MultiQueryAttention,
    NaiveAttention,
    SlidingWindowAttention,
)

# The arguments that a class needs beside embed_dim and num_heads.
NEEDED: dict[type[BaseAttention], dict[str, Any]] = {
    NaiveAttention: {},
    FlashAttentionV1: {},
    FlashAttentionV2: {},
    SlidingWindowAttention: {},
    GroupedQueryAttention: {"num_kv_heads": 2},
    MultiQueryAttention: {},
    MaskedAttention: {},
    FusedFlashAttention: {},
}
LAYERS = list(NEEDED)
TILED = LAYERS[1:]
TAKE_MASKS = [layer for layer in LAYERS if layer.takes_masks]


def make(layer: type[BaseAttention], embed_dim: int = 32, num_heads: int = 4, **options: Any) -> Any:
    """The same weights in each call."""
    mx.random.seed(1)
    return layer(embed_dim, num_heads, **{**NEEDED[layer], **options})


def tokens(length: int = 20, embed_dim: int = 32, batch: int = 2) -> mx.array:
    return mx.random.normal((batch, length, embed_dim), key=mx.random.key(2))
