"""The tokens that grammars allow, applied to logits."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import mlx.core as mx


def apply_masks(logits: mx.array, masks: Sequence[bytes | None]) -> mx.array:
    """`logits` [R, V] as float32, with -inf for each token whose bit in the mask of its row is 0 or missing.

    A mask has the lowest bit of each byte first; None allows every token.
    """
    vocabulary = logits.shape[-1]
    size = -(-vocabulary // 8)
    rows = [b"\xff" * size if mask is None else mask[:size].ljust(size, b"\0") for mask in masks]
    joined: Any = memoryview(b"".join(rows))
    # A sum: for 150 000 tokens on a CPU, mx.where takes 0.6 ms, a sum 0.03 ms and this look-up 0.2 ms.
    added = mx.take(_added_by_byte(), mx.array(joined), axis=0).reshape(len(rows), -1)
    return logits + added[:, :vocabulary]


@cache
def _added_by_byte() -> mx.array:
    """What each byte of a mask adds to the logits of its 8 tokens, [256, 8]: 0 or -inf."""
    bits = mx.arange(256)[:, None] // mx.array([2**bit for bit in range(8)]) % 2
    added = mx.where(bits == 1, 0.0, -mx.inf)
    mx.eval(added)
    return added
