"""Attention with the whole score matrix: the reference of the other layers."""

from typing import Any

import mlx.core as mx

from ..attention import attention_reference, explain
from .base import BaseAttention
from .memory import MB, Sizes, common_usage, measured_peak

WARN_ABOVE = 8e9  # bytes


class NaiveAttention(BaseAttention):
    """softmax(scale * query key^T) value, in O(N^2) memory; the only layer that returns weights.

    The weights [B, heads, N, N] are float32, also for 16-bit inputs. A row adds up to 1, or to 0 if it sees
    no key. The only layer with dropout: in training mode weights are dropped after they were returned.
    """

    def __call__(self, x: mx.array, attn_mask: mx.array | None = None) -> tuple[mx.array, mx.array]:
        query, key, value = self.project(x)
        dtype = query.dtype
        query, key, value = (part.astype(mx.float32) for part in (query, key, value))
        mask = self.mask_of_scores(attn_mask, x)
        scores = self.scale * (query @ key.swapaxes(-1, -2))
        if mask is not None and mask.dtype != mx.bool_:
            scores = scores + mask
            mask = ~mx.isneginf(mask)
        shown = self.visible(x.shape[1]) if mask is None else mask & self.visible(x.shape[1])
        weights = _softmax(mx.where(shown, scores, -mx.inf))
        out = self._dropped(weights) @ value
        return self.merge_heads(out.astype(dtype)), weights

    def _dropped(self, weights: mx.array) -> mx.array:
        if not (self.training and self.dropout):
            return weights
        return weights * mx.random.bernoulli(1 - self.dropout, weights.shape) / (1 - self.dropout)

    def get_memory_usage(
        self, batch_size: int, seq_len: int, *, dtype: mx.Dtype | None = None, measure: bool = False
    ) -> dict[str, Any]:
        """What a forward pass keeps in memory, in MB of 10^6 bytes, and what a backward pass needs of it.

        dtype is that of x and the parameters, by default the layer's; scores are float32 in any.
        workspace_mb is that of `attention_reference`. measure: run it, for measured_peak_mb.
        """
        sizes = Sizes.of_layer(self, batch_size, seq_len, dtype)
        total = sizes.naive
        usage = {
            "attention_matrix_mb": sizes.scores / MB,
            **common_usage(sizes, total, complexity="O(N^2)", saved=total),
            "bottleneck": "attention matrix",
            "attention_matrix_percentage": 100 * sizes.scores / total if total else 0.0,
            "comparison_with_naive": {"naive_mb": total / MB, "reduction_ratio": 1.0},
            "workspace_mb": explain(attention_reference, *sizes.arrays(), causal=self.causal).workspace_bytes
            / MB,
        }
        if total > WARN_ABOVE:
            usage["warning"] = f"{total / 1e9:.1f} GB: use FlashAttentionV2, whose memory is O(N)"
        return usage | measured_peak(self, sizes) if measure else usage


def _softmax(scores: mx.array) -> mx.array:
    """Along the last axis; zeros where all scores are -inf."""
    if scores.size == 0:
        return scores
    empty = mx.isneginf(scores.max(axis=-1, keepdims=True))
    return mx.where(empty, 0, mx.softmax(mx.where(empty, 0, scores), axis=-1))
