"""Qwen2 of week 1: dense weights, grouped attention, no cache."""

import mlx.core as mx

from .cache.base import NoCache
from .course.stages import WEEK1, Week1Model
from .models.layers import MLP
from .models.qwen2 import Qwen2Attention, Qwen2Block, Qwen2Model
from .ops.arguments import Mask


class Qwen2MultiHeadAttention(Qwen2Attention):
    """Attention within the sequence of the call, at positions 0..L-1."""

    ops = WEEK1

    def __call__(self, x: mx.array, mask: Mask = None) -> mx.array:  # type: ignore[override]
        """[B, L, hidden] -> the same."""
        return self.forward(x, 0, NoCache(), mask)


class Qwen2MLP(MLP):
    """The feed-forward layer on dense weights."""


class Qwen2TransformerBlock(Qwen2Block):
    """One layer of the model."""

    attention = Qwen2MultiHeadAttention
    feed_forward = Qwen2MLP

    def __call__(self, x: mx.array, mask: Mask = None) -> mx.array:  # type: ignore[override]
        """[B, L, hidden] -> the same."""
        return self.forward(x, 0, NoCache(), mask)


class Qwen2ModelWeek1(Week1Model, Qwen2Model):
    """Computes the whole sequence in each call."""

    block = Qwen2TransformerBlock
