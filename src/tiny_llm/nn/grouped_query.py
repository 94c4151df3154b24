"""Attention in which several query heads share keys and values."""

from typing import Any

import mlx.core as mx

from ..checks.types import check_size
from ..errors import ArgumentError
from .linear import Linear
from .memory import MB, Sizes, common_usage, comparison, measured_peak
from .tiled import TiledAttention


class GroupedQueryAttention(TiledAttention):
    """num_heads query heads share num_kv_heads heads of keys and values, which are never repeated.

    Parameters: q_proj, k_proj, v_proj and out_proj.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_kv_heads: int,
        block_size: int = 64,
        dropout: float = 0.0,
        bias: bool = True,
        causal: bool = False,
    ) -> None:
        check_size(self.name, "num_kv_heads", num_kv_heads)
        self.num_kv_heads = num_kv_heads  # before the base class, which adds the projections
        super().__init__(embed_dim, num_heads, block_size, dropout, bias, causal)

    @property
    def num_heads_of_keys(self) -> int:
        return self.num_kv_heads

    def add_projections(self, bias: bool) -> None:
        if self.num_heads % self.num_kv_heads != 0:
            expected = f"a divisor of the {self.num_heads} heads"
            raise ArgumentError(self.name, "num_kv_heads", self.num_kv_heads, expected)
        of_keys = self.num_kv_heads * self.head_dim
        self.q_proj = Linear(self.embed_dim, self.embed_dim, bias=bias)
        self.k_proj = Linear(self.embed_dim, of_keys, bias=bias)
        self.v_proj = Linear(self.embed_dim, of_keys, bias=bias)

    def project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        self.check_input(x)
        projections = (self.q_proj, self.k_proj, self.v_proj)
        query, key, value = (
            mx.unflatten(projection(x), -1, (-1, self.head_dim)).swapaxes(1, 2) for projection in projections
        )
        return query, key, value

    def get_memory_usage(
        self, batch_size: int, seq_len: int, *, dtype: mx.Dtype | None = None, measure: bool = False
    ) -> dict[str, Any]:
        """Queries, keys, values and output; workspace_mb and measured_peak_mb as in the other layers.

        naive_mb is that of as many heads of keys as of queries, without their score matrix: what is saved is
        due to sharing alone.
        """
        sizes = Sizes.of_layer(self, batch_size, seq_len, dtype)
        total = sizes.qkv + sizes.output
        full_key_and_value = 2 * sizes.query
        usage = {
            "q_mb": sizes.query / MB,
            "kv_mb": sizes.key_and_value / MB,
            "expanded_kv_mb": 0.0,
            "full_mha_kv_mb": full_key_and_value / MB,
            "kv_savings_ratio": self.num_heads / self.num_kv_heads,
            **common_usage(
                sizes, total, complexity="O(N) forward and backward", saved=sizes.saved_for_backward
            ),
            "effective_forward_mb": total / MB,
            "num_query_heads": self.num_heads,
            "num_kv_heads": self.num_kv_heads,
            "note": "keys and values are read in place by each query head, never repeated",
            "comparison_with_naive": comparison(
                sizes.query + full_key_and_value + sizes.output, total, "gqa_mb"
            ),
            "workspace_mb": self.explain(batch_size, seq_len, dtype=dtype).workspace_bytes / MB,
        }
        return usage | measured_peak(self, sizes) if measure else usage

    def _extra_repr(self) -> str:
        return f"{super()._extra_repr()}, num_kv_heads={self.num_kv_heads}"
