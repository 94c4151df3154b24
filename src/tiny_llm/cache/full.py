"""The cache of a request, or of several of equal length: one dense array with spare capacity."""

from copy import copy

import mlx.core as mx

from ..checks.arrays import dtype_name
from ..errors import ArgumentError
from ..ops.arguments import Mask
from .base import Fetched, TinyKvCache, check_rewind, check_tokens

BLOCK = 256  # tokens


class TinyKvFullCache(TinyKvCache):
    """All tokens of one layer in a contiguous array."""

    def __init__(self) -> None:
        self.offset = 0
        self._storage: tuple[mx.array, mx.array] | None = None  # each [B, H, capacity, D]
        # True if a native operation returned the arrays and they were held here since: the next step may
        # then write past the last token although other arrays share the memory.
        self._append_in_place = False

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
        # New array objects are written to: a copy of this cache may hold the old ones.
        keys, values = map(copy, self.reserve(key.shape, key.dtype)[:2])
        end = self.offset + key.shape[2]
        keys[:, :, self.offset : end] = key
        values[:, :, self.offset : end] = value
        self.commit(keys, values, key.shape[2])
        return keys[:, :, :end], values[:, :, :end], end, mask

    def rewind(self, n: int) -> None:
        check_rewind("TinyKvFullCache", n, self.offset)
        self.offset -= n
        if self.offset == 0:
            self._storage = None

    def reserve(self, tokens: tuple[int, ...], dtype: mx.Dtype) -> tuple[mx.array, mx.array, bool]:
        """Keys and values [B, H, capacity, D], with space from `offset` on for tokens of shape [B, H, L, D].

        The third result is `append_in_place`: see `__init__`.
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
                "TinyKvFullCache",
                "key",
                f"{tokens} {dtype_name(dtype)}",
                f"{expected} {dtype_name(keys.dtype)} as before",
            )
        if needed <= keys.shape[2]:
            return keys, values, self._append_in_place
        return *grown((keys, values), needed), False

    def commit(
        self, keys: mx.array, values: mx.array, num_new_tokens: int, *, append_in_place: bool = False
    ) -> None:
        """Store the arrays from `reserve` after `num_new_tokens` tokens were written to them.

        append_in_place: whether a native operation returned them.
        """
        self._storage = keys, values
        self._append_in_place = append_in_place
        self.offset += num_new_tokens


def grown(arrays: tuple[mx.array, mx.array], tokens: int) -> tuple[mx.array, mx.array]:
    """Keys and values [B, H, capacity, D] with space for `tokens` tokens.

    Grows by 1.5x, so appends are amortised O(1): at most 3 copies per token.
    """
    keys, values = arrays
    capacity = keys.shape[2]
    if tokens <= capacity:
        return arrays
    more = [(0, 0), (0, 0), (0, _blocks(max(tokens, capacity * 3 // 2)) - capacity), (0, 0)]
    return mx.pad(keys, more), mx.pad(values, more)


def _blocks(tokens: int) -> int:
    """`tokens`, rounded up to whole blocks."""
    return -(-tokens // BLOCK) * BLOCK
