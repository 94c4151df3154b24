"""Where the new tokens of each row stand in their sequence."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

Offset = int | Sequence[int] | mx.array


def row_offsets(offset: Offset, rows: int) -> int | list[int]:
    """One number where it holds for every row, otherwise one per row."""
    if isinstance(offset, int):
        return offset
    given: Any = offset.tolist() if isinstance(offset, mx.array) else offset
    if not isinstance(given, Sequence):
        return int(given)
    if len(given) != rows:
        raise ValueError(f"offset: got {len(given)} numbers, expected one, or one for each of {rows} rows")
    offsets = [int(start) for start in given]
    return offsets[0] if len(set(offsets)) == 1 else offsets
