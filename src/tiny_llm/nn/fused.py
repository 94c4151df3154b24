"""The fastest attention of this machine."""

from .tiled import TiledAttention


class FusedFlashAttention(TiledAttention):
    """Attention on the best available path, with masks and gradients; `explain` returns the path."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        causal: bool = False,
        block_size: int = 64,
    ) -> None:
        super().__init__(embed_dim, num_heads, block_size, dropout, bias, causal)
