"""Qwen2 of week 1: dense weights, grouped attention, and no memory between two calls."""

from typing import Any

import mlx.core as mx

from .kv_cache.base import Mask, NoCache
from .stages import WEEK1
from .transformer.layers import MLP
from .transformer.qwen2 import Qwen2Attention, Qwen2Block, Qwen2Model


class Qwen2MultiHeadAttention(Qwen2Attention):
    """Attention over the sequence it is called with, positions 0..L-1."""

    ops = WEEK1

    def __call__(self, x: mx.array, mask: Mask = None) -> mx.array:
        """[B, L, hidden] -> the same."""
        return self.forward(x, 0, NoCache(), mask)


class Qwen2MLP(MLP):
    """The feed-forward layer on dense weights."""


class Qwen2TransformerBlock(Qwen2Block):
    """One layer of the model."""

    attention = Qwen2MultiHeadAttention
    feed_forward = Qwen2MLP

    def __call__(self, x: mx.array, mask: Mask = None) -> mx.array:
        """[B, L, hidden] -> the same."""
        return self.forward(x, 0, NoCache(), mask)


class Qwen2ModelWeek1(Qwen2Model):
    """Calculates the whole sequence anew at each call."""

    ops = WEEK1
    block = Qwen2TransformerBlock

    def __init__(self, mlx_model: Any, *, dtype: mx.Dtype | None = None):
        super().__init__(mlx_model, dtype)

    def __call__(self, inputs: mx.array) -> mx.array:
        """Token ids [B, L] -> logits [B, L, V]."""
        return self.forward(inputs, 0, [NoCache()] * self.num_hidden_layers)
