"""A model whose attention can be watched: each layer passes on its query, key and value."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Protocol

import mlx.core as mx

from tiny_llm.cache.base import TinyKvCache
from tiny_llm.models.ops import Ops
from tiny_llm.models.qkv import QKV
from tiny_llm.ops.arguments import Mask


class AttentionObserver(Protocol):
    """Called in each layer with the new tokens, after RoPE.

    query [B, H_q, L, D], key and value [B, H, L, D].
    """

    def __call__(self, layer: int, query: mx.array, key: mx.array, value: mx.array) -> None: ...


def observed(model: Any, observe: AttentionObserver) -> Any:
    """A copy of a model, on the same weights, that also calls `observe`; the model itself does not change.

    Only the attention operation of the copy differs, so nothing costs anything while nobody observes. The
    copy runs layer by layer: its blocks are not fused, because a fused block has no query to show.
    """
    watched = copy.copy(model)
    watched.layers_inner = []
    for layer, block in enumerate(model.layers_inner):
        block = copy.copy(block)
        block.fused = None
        block.self_attn = copy.copy(block.self_attn)
        block.self_attn.ops = _observing(block.self_attn.ops, layer, observe)
        watched.layers_inner.append(block)
    return watched


def _observing(ops: Ops, layer: int, observe: AttentionObserver) -> Ops:
    def attend(qkv: QKV, cache: TinyKvCache, mask: Mask) -> mx.array:
        observe(layer, *qkv.heads_first())
        return ops.attend(qkv, cache, mask)

    return replace(ops, attend=attend, fused_blocks=())
