"""The tokens that grammars allow, applied to logits."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

WORD = 32  # bits


def apply_masks(logits: mx.array, masks: Sequence[bytes | None]) -> mx.array:
    """`logits` [R, V] with -inf for each token whose bit in the mask of its row is 0 or missing.

    A mask has the lowest bit of each byte first; None allows every token.
    """
    vocabulary = logits.shape[-1]
    size = -(-vocabulary // WORD) * WORD // 8
    rows = [b"\xff" * size if mask is None else mask[:size].ljust(size, b"\0") for mask in masks]
    joined: Any = memoryview(b"".join(rows)).cast("I")
    words = mx.array(joined).reshape(len(rows), -1, 1)
    bits = mx.bitwise_and(mx.right_shift(words, mx.arange(WORD, dtype=mx.uint32)), mx.array(1, mx.uint32))
    allowed = bits.reshape(len(rows), -1).astype(mx.bool_)[:, :vocabulary]
    return mx.where(allowed, logits, mx.array(-mx.inf, logits.dtype))
