"""FlashAttention with the loop over keys outside."""

from dataclasses import replace

import mlx.core as mx

from ..attention import Explanation, flash_attention
from ..ops.schedules import flash_attention_v1
from .efficiency import causal_blocks
from .memory import FLOAT32, Sizes
from .tiled import TiledAttention


class FlashAttentionV1(TiledAttention):
    """Attention by the schedule V1, to compare with V2: the state of all rows passes through memory.

    The forward pass is the readable `flash_attention_v1` on MLX operations, in tiles of block_size; it is
    slower than the native kernels of V2, and without mx.vmap. The gradient is that of `flash_attention`.
    """

    takes_masks = False

    def attend(self, query: mx.array, key: mx.array, value: mx.array, mask: mx.array | None) -> mx.array:
        tile = (self.block_size, self.block_size)

        @mx.custom_function
        def forward(query: mx.array, key: mx.array, value: mx.array) -> mx.array:
            return flash_attention_v1(query, key, value, self.scale, causal=self.causal, tile=tile)[0]

        @forward.vjp
        def backward(primals: tuple[mx.array, ...], cotangent: mx.array, _: mx.array) -> list[mx.array]:
            def same(query: mx.array, key: mx.array, value: mx.array) -> mx.array:
                return flash_attention(query, key, value, self.scale, causal=self.causal)

            return mx.vjp(same, list(primals), [cotangent])[1]

        out: mx.array = forward(query, key, value)  # type: ignore[assignment]
        return out

    def explain(self, batch_size: int, seq_len: int, *, dtype: mx.Dtype | None = None) -> Explanation:
        """What the readable schedule does; the gradient's part is that of `flash_attention`."""
        sizes = Sizes.of_layer(self, batch_size, seq_len, dtype)
        total, computed = causal_blocks(seq_len, self.block_size, self.causal)
        heads = batch_size * self.num_heads
        return replace(
            super().explain(batch_size, seq_len, dtype=dtype),
            path="flash_attention_v1",
            fused=False,
            reasons=("V1 is there to be read, on MLX operations",),
            schedule="v1",
            tile=(self.block_size, self.block_size),
            splits=1,
            tiles_visited=heads * computed,
            tiles_total=heads * total,
            workspace_bytes=FLOAT32 * sizes.rows * (self.head_dim + 2),  # acc, m and l of all rows
            math="mlx",
            batch_invariant=False,
        )
