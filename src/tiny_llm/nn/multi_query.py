"""Attention in which all query heads share one head of keys and values."""

from .grouped_query import GroupedQueryAttention


class MultiQueryAttention(GroupedQueryAttention):
    """GroupedQueryAttention with one head of keys and values."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        block_size: int = 64,
        dropout: float = 0.0,
        bias: bool = True,
        causal: bool = False,
    ) -> None:
        super().__init__(embed_dim, num_heads, 1, block_size, dropout, bias, causal)
