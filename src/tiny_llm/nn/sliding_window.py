"""Attention to the tokens nearby."""

from typing import Any

import mlx.core as mx

from ..checks.types import check_size
from ..ops.arguments import AttentionOptions
from .masks import visible_keys
from .memory import FLOAT32, MB, Sizes, comparison
from .tiled import TiledAttention


class SlidingWindowAttention(TiledAttention):
    """Each token sees window_size tokens: the last ones up to itself, or, if not causal, around itself."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        window_size: int = 4096,
        block_size: int = 64,
        dropout: float = 0.0,
        bias: bool = True,
        causal: bool = True,
    ) -> None:
        check_size(self.name, "window_size", window_size)
        super().__init__(embed_dim, num_heads, block_size, dropout, bias, causal)
        self.window_size = window_size

    def options(self) -> AttentionOptions:
        return {"causal": self.causal, "window": self.window_size}

    def visible(self, seq_len: int) -> mx.array:
        if self.causal:
            return visible_keys(seq_len, left=self.window_size - 1, right=0)
        return visible_keys(seq_len, left=self.window_size // 2, right=(self.window_size - 1) // 2)

    def get_memory_usage(
        self, batch_size: int, seq_len: int, *, dtype: mx.Dtype | None = None, measure: bool = False
    ) -> dict[str, Any]:
        """As in the other tiled layers; window_mb, which is not part of total_mb, is all scores of a window.

        blocks_per_window: the most key blocks that a query block meets. vs_full_reduction: pairs of tokens
        with attention in full, over those in a window.
        """
        sizes = Sizes.of_layer(self, batch_size, seq_len, dtype)
        usage = super().get_memory_usage(batch_size, seq_len, dtype=dtype, measure=measure)
        compared = usage["comparison_with_naive"]
        context = min(self.window_size, seq_len)
        reach = -(-self.window_size // self.block_size) + (1 if self.causal else 2)
        return usage | {
            "window_mb": FLOAT32 * sizes.rows * self.window_size / MB,
            "window_size": self.window_size,
            "blocks_per_window": min(reach, -(-seq_len // self.block_size)),
            "vs_full_reduction": seq_len / context if context else 1.0,
            "effective_context": context,
            "comparison_with_naive": comparison(
                sizes.naive, round(compared["flash_mb"] * MB), "sliding_window_mb"
            ),
        }
