"""Query, key and value of the new tokens of a layer, and their positions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from ..errors import ArgumentError
from ..positional_encoding import RoPE

Offset = int | Sequence[int] | mx.array


@dataclass(eq=False, slots=True)
class QKV:
    """Query [B, L, H_q, D], key and value [B, L, H, D] of one layer, before RoPE.

    The first token of row b has the position offsets[b], or `offsets` if that is one number.
    """

    query: mx.array
    key: mx.array
    value: mx.array
    rope: RoPE
    offsets: int | list[int]

    def heads_first(self) -> tuple[mx.array, mx.array, mx.array]:
        """After RoPE, in the layout of attention: query [B, H_q, L, D], key and value [B, H, L, D]."""
        query = self.rope.heads_first(self.query, self.offsets)
        key = self.rope.heads_first(self.key, self.offsets)
        return query, key, self.value.swapaxes(1, 2)


def row_offsets(offset: Offset, rows: int) -> int | list[int]:
    """One number if it holds for every row, else one per row."""
    if isinstance(offset, int):
        return offset
    given: Any = offset.tolist() if isinstance(offset, mx.array) else offset
    if not isinstance(given, Sequence):
        return int(given)
    if len(given) != rows:
        raise ArgumentError("", "offset", f"{len(given)} numbers", f"one, or one for each of {rows} rows")
    offsets = [int(start) for start in given]
    return offsets[0] if len(set(offsets)) == 1 else offsets
