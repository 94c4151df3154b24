"""Attention with any mask."""

from math import prod
from typing import Any

import mlx.core as mx

from ..attention import explain, flash_attention
from ..checks.types import check_size
from .memory import MB, Sizes, comparison
from .tiled import TiledAttention


class MaskedAttention(TiledAttention):
    """Attention with an attn_mask, which is read in place: [N, N], [B, N, N], or up to [B, heads, N, N].

    A bool mask shows what is True, a float mask is added; causal also hides later tokens. A token that sees
    nothing gives the bias of out_proj. chunk_size: rows of scores at a time where no kernel applies (heads
    larger than 256), so that memory is O(chunk_size * N) there.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        causal: bool = False,
        chunk_size: int = 1024,
    ) -> None:
        check_size(self.name, "chunk_size", chunk_size)
        super().__init__(embed_dim, num_heads, dropout=dropout, bias=bias, causal=causal)
        self.chunk_size = chunk_size

    def attend(self, query: mx.array, key: mx.array, value: mx.array, mask: mx.array | None) -> mx.array:
        tokens = query.shape[2]
        call = (query, key, value, self.scale, mask)
        if tokens <= self.chunk_size or explain(flash_attention, *call, **self.options()).path != "reference":
            return super().attend(query, key, value, mask)
        chunks: list[mx.array] = []
        for first in range(0, tokens, self.chunk_size):
            rows = slice(first, first + self.chunk_size)
            # The last of the rows is aligned with the last key, so causal attention drops later keys here.
            keys = slice(min(rows.stop, tokens) if self.causal else tokens)
            part = None if mask is None else _part_of_mask(mask, rows, keys)
            # One after the other: else MLX would hold the scores of all chunks at once.
            some = mx.depends([query[:, :, rows]], chunks[-1:])[0] if chunks else query[:, :, rows]
            chunks.append(super().attend(some, key[:, :, keys], value[:, :, keys], part))
        return mx.concatenate(chunks, axis=2)

    def get_memory_usage(
        self,
        batch_size: int,
        seq_len: int,
        *,
        dtype: mx.Dtype | None = None,
        measure: bool = False,
        mask_shape: tuple[int, ...] | None = None,
        mask_dtype: mx.Dtype = mx.bool_,
    ) -> dict[str, Any]:
        """As in the other tiled layers, and a mask of mask_shape, by default (1, 1, N, N), in total_mb.

        It is measured without a mask. chunk_processing_mb is 0: a mask needs no pass of its own.
        """
        sizes = Sizes.of_layer(self, batch_size, seq_len, dtype)
        usage = super().get_memory_usage(batch_size, seq_len, dtype=dtype, measure=measure)
        mask = prod((1, 1, seq_len, seq_len) if mask_shape is None else mask_shape) * mask_dtype.size
        total = round(usage["total_mb"] * MB) + mask
        return usage | {
            "mask_mb": mask / MB,
            "chunk_processing_mb": 0.0,
            "chunk_size": self.chunk_size,
            "total_mb": total / MB,
            "total_gb": total / 1e9,
            "comparison_with_naive": comparison(sizes.naive, total, "masked_mb"),
        }


def _part_of_mask(mask: mx.array, rows: slice, keys: slice) -> mx.array:
    """An axis of size 1 is broadcast, so it stays."""
    wanted = (rows if mask.shape[-2] > 1 else slice(None), keys if mask.shape[-1] > 1 else slice(None))
    return mask[..., *wanted]
