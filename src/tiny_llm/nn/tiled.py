"""The base class of layers that call `flash_attention`."""

from typing import Any

import mlx.core as mx

from ..attention import Explanation, explain, flash_attention
from ..checks.types import check_size
from ..errors import UnsupportedError
from ..ops.arguments import AttentionOptions
from .base import BaseAttention
from .memory import MB, Sizes, common_usage, comparison, measured_peak


class TiledAttention(BaseAttention):
    """Attention in tiles, in O(N) memory for outputs; weights are never built, so None is returned.

    block_size is the tile of `get_memory_usage` and `get_causal_efficiency`. The kernels choose their own
    tile, which `explain` returns; results do not depend on it. In training mode a dropout above 0 is refused.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        block_size: int = 64,
        dropout: float = 0.0,
        bias: bool = True,
        causal: bool = False,
    ) -> None:
        check_size(self.name, "block_size", block_size)
        super().__init__(embed_dim, num_heads, dropout, bias, causal)
        self.block_size = block_size

    def __call__(self, x: mx.array, attn_mask: mx.array | None = None) -> tuple[mx.array, None]:
        self._check_dropout()
        query, key, value = self.project(x)
        out = self.attend(query, key, value, self.mask_of_scores(attn_mask, x))
        return self.merge_heads(out), None

    def attend(self, query: mx.array, key: mx.array, value: mx.array, mask: mx.array | None) -> mx.array:
        """The output of the heads, [B, heads, N, head_dim]."""
        return flash_attention(query, key, value, self.scale, mask, **self.options())

    def options(self) -> AttentionOptions:
        """The keyword arguments of `flash_attention`."""
        return {"causal": self.causal}

    def explain(self, batch_size: int, seq_len: int, *, dtype: mx.Dtype | None = None) -> Explanation:
        """How the attention of x [batch_size, seq_len, embed_dim] would run: path, tile, memory."""
        sizes = Sizes.of_layer(self, batch_size, seq_len, dtype)
        explanation: Explanation = explain(flash_attention, *sizes.arrays(), self.scale, **self.options())
        return explanation

    def get_memory_usage(
        self, batch_size: int, seq_len: int, *, dtype: mx.Dtype | None = None, measure: bool = False
    ) -> dict[str, Any]:
        """What a forward pass keeps in memory, in MB of 10^6 bytes, and what a backward pass needs of it.

        dtype is that of x and the parameters, by default the layer's; statistics and scores are float32.
        workspace_mb is that of the kernels, from `explain`. measure: run the layer, for measured_peak_mb.
        """
        sizes = Sizes.of_layer(self, batch_size, seq_len, dtype)
        total = sizes.qkv + sizes.output + sizes.block(self.block_size) + sizes.statistics
        usage = {
            "block_attention_mb": sizes.block(self.block_size) / MB,
            "statistics_mb": sizes.statistics / MB,
            "block_size": self.block_size,
            **common_usage(sizes, total, complexity="O(N)", saved=sizes.saved_for_backward),
            "comparison_with_naive": comparison(sizes.naive, total, "flash_mb"),
            "workspace_mb": self.explain(batch_size, seq_len, dtype=dtype).workspace_bytes / MB,
        }
        return usage | measured_peak(self, sizes) if measure else usage

    def _check_dropout(self) -> None:
        if self.training and self.dropout:
            got = f"{self.dropout} in training mode"
            expected = "0: call eval() or set dropout=0; NaiveAttention drops weights"
            raise UnsupportedError(self.name, "dropout", got, expected)
