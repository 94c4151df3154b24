"""The cache of a single request, or of several of one length: one dense array that has room to grow."""

from copy import copy

import mlx.core as mx

from ..errors import ArgumentError
from ..ops.arguments import Mask
from .base import Fetched, TinyKvCache, check_rewind, check_tokens

BLOCK = 256  # tokens


class TinyKvFullCache(TinyKvCache):
    """All tokens of one layer, side by side."""

    def __init__(self) -> None:
        self.offset = 0
        self._storage: tuple[mx.array, mx.array] | None = None  # each [B, H, capacity, D]
        self._kept = False  # whether its arrays came back from a native operation, and are held since

    @property
    def storage(self) -> tuple[mx.array, mx.array] | None:
        return self._storage

    @property
    def key_values(self) -> tuple[mx.array, mx.array] | None:
        """All keys and values [B, H, offset, D]; None before the first."""
        if self._storage is None:
            return None
        keys, values = self._storage
        return keys[:, :, : self.offset], values[:, :, : self.offset]

    def update_and_fetch(
        self, key: mx.array, value: mx.array, mask_length: int | None = None, mask: Mask = None
    ) -> Fetched:
        check_tokens("TinyKvFullCache", key, value)
        # Arrays of its own are written to: a copy of this cache may have the others.
        keys, values = map(copy, self.room_for(key.shape, key.dtype)[:2])
        end = self.offset + key.shape[2]
        keys[:, :, self.offset : end] = key
        values[:, :, self.offset : end] = value
        self.take(keys, values, key.shape[2])
        return keys[:, :, :end], values[:, :, :end], end, mask

    def rewind(self, n: int) -> None:
        check_rewind("TinyKvFullCache", n, self.offset)
        self.offset -= n
        if self.offset == 0:
            self._storage = None

    def room_for(self, tokens: tuple[int, ...], dtype: mx.Dtype) -> tuple[mx.array, mx.array, bool]:
        """Keys and values [B, H, capacity, D], with room from `offset` on for new `tokens` [B, H, L, D].

        And whether they are kept: they came back from a native operation, and are held since.
        """
        batch, heads, length, size = tokens
        needed = self.offset + length
        if self._storage is None:
            shape = (batch, heads, _blocks(needed), size)
            return mx.zeros(shape, dtype), mx.zeros(shape, dtype), False
        keys, values = self._storage
        expected = (*keys.shape[:2], length, keys.shape[3])
        if tokens != expected or dtype != keys.dtype:
            raise ArgumentError(
                "TinyKvFullCache", "key", f"{tokens} {dtype}", f"{expected} {keys.dtype} as before"
            )
        capacity = keys.shape[2]
        if needed <= capacity:
            return keys, values, self._kept
        # Half as much again each time: n tokens cost at most 3 n copies of a token in all.
        more = [(0, 0), (0, 0), (0, _blocks(max(needed, capacity * 3 // 2)) - capacity), (0, 0)]
        return mx.pad(keys, more), mx.pad(values, more), False

    def take(self, keys: mx.array, values: mx.array, added: int, *, kept: bool = False) -> None:
        """Hold what `room_for` gave, now that so many tokens more are written.

        These arrays count as kept if a native operation gave them back.
        """
        self._storage = keys, values
        self._kept = kept
        self.offset += added


def _blocks(tokens: int) -> int:
    """The number of tokens in the blocks that hold so many."""
    return -(-tokens // BLOCK) * BLOCK
