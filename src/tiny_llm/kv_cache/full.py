"""The cache of a single request, or of several of one length: one dense array that has room to grow."""

import mlx.core as mx

from .base import Fetched, Mask, TinyKvCache, check_rewind, check_tokens

BLOCK = 256  # tokens


class TinyKvFullCache(TinyKvCache):
    """All tokens of one layer, side by side."""

    def __init__(self) -> None:
        self.offset = 0
        self._storage: tuple[mx.array, mx.array] | None = None  # each [B, H, capacity, D]

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
        keys, values = self._with_room_for(key)
        end = self.offset + key.shape[2]
        keys[:, :, self.offset : end] = key
        values[:, :, self.offset : end] = value
        self._storage = keys, values
        self.offset = end
        return keys[:, :, :end], values[:, :, :end], end, mask

    def rewind(self, n: int) -> None:
        check_rewind("TinyKvFullCache", n, self.offset)
        self.offset -= n
        if self.offset == 0:
            self._storage = None

    def _with_room_for(self, key: mx.array) -> tuple[mx.array, mx.array]:
        batch, heads, length, size = key.shape
        needed = self.offset + length
        if self._storage is None:
            shape = (batch, heads, _blocks(needed), size)
            return mx.zeros(shape, key.dtype), mx.zeros(shape, key.dtype)
        keys, values = self._storage
        expected = (*keys.shape[:2], length, keys.shape[3])
        if key.shape != expected or key.dtype != keys.dtype:
            raise ValueError(
                f"TinyKvFullCache: key: got {key.shape} {key.dtype}, "
                f"expected {expected} {keys.dtype} as before"
            )
        capacity = keys.shape[2]
        if needed <= capacity:
            return keys, values
        # Half as much again each time: n tokens cost at most 3 n copies of a token in all.
        more = [(0, 0), (0, 0), (0, _blocks(max(needed, capacity * 3 // 2)) - capacity), (0, 0)]
        return mx.pad(keys, more), mx.pad(values, more)


def _blocks(tokens: int) -> int:
    """The number of tokens in the blocks that hold so many."""
    return -(-tokens // BLOCK) * BLOCK
