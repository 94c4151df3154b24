"""Week 1: dense weights, no cache; every call computes the whole text."""

from typing import Any

import mlx.core as mx

from ..cache.base import NoCache
from ..models.model import Transformer
from .stages import WEEK1


class Week1Model(Transformer):
    """A model without a cache."""

    ops = WEEK1

    def __init__(self, mlx_model: Any, *, dtype: mx.Dtype | None = None):
        super().__init__(mlx_model, dtype)

    def __call__(self, inputs: mx.array) -> mx.array:  # type: ignore[override]
        """Token ids [B, L] -> logits [B, L, V]."""
        return super().__call__(inputs, 0, self._no_caches())

    def next_logits(self, inputs: mx.array) -> mx.array:  # type: ignore[override]
        """Token ids [B, L] -> logits [B, V] of the last tokens only."""
        return super().next_logits(inputs, 0, self._no_caches())

    def _no_caches(self) -> list[NoCache]:
        return [NoCache()] * self.num_hidden_layers
