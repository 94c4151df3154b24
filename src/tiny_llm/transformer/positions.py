"""Where the new tokens of each row stand in their sequence."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

Offset = int | Sequence[int] | mx.array


def row_offsets(offset: Offset, rows: int) -> list[int]:
    """One offset per row; a single number holds for every row."""
    given: Any = offset.tolist() if isinstance(offset, mx.array) else offset
    offsets = list(given) if isinstance(given, Sequence) else [int(given)] * rows
    if len(offsets) != rows:
        raise ValueError(f"offset: got {len(offsets)} numbers, expected one, or one for each of {rows} rows")
    return offsets


def row_positions(offset: Offset, rows: int, length: int) -> list[slice] | slice:
    """The positions of `length` tokens from each row's offset on, in the form that `RoPE` takes."""
    offsets = row_offsets(offset, rows)
    spans = [slice(start, start + length) for start in offsets]
    return spans[0] if len(set(offsets)) == 1 else spans
