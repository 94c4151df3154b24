"""The caches of several requests in one array, for a GPU: a decode step is one write and one attention."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from ..checks.types import check_size
from ..errors import ArgumentError
from ..ops.arguments import Mask
from .base import Fetched, TinyKvCache, check_batch_mask, check_slot, check_slot_length, check_tokens
from .full import grown


class StackedStep(NamedTuple):
    """Where the new tokens of a step go, and what they see.

    columns [B, H, L, D] of the new tokens; visible, the mask [B, 1, L, S]; lengths of the rows after the
    step, None for idle ones.
    """

    columns: mx.array
    visible: mx.array
    lengths: tuple[int | None, ...]


class Columns:
    """The steps of a batch. All layers of a model have the same ones, so each is checked and made once."""

    def __init__(self) -> None:
        self._key: tuple[Any, ...] = ()
        self._step: StackedStep

    def step(self, lengths: Sequence[int | None], shape: tuple[int, ...], max_seq_len: int) -> StackedStep:
        """The step that appends tokens of this shape, [B, H, L, D], to rows of these lengths."""
        key = (tuple(lengths), shape, max_seq_len)
        if key != self._key:
            self._key, self._step = key, _make_step(*key)
        return self._step


def _make_step(lengths: tuple[int | None, ...], shape: tuple[int, ...], max_seq_len: int) -> StackedStep:
    new = shape[2]
    if shape[0] != len(lengths):
        raise ArgumentError("StackedKvCache", "key", f"{shape[0]} rows", len(lengths))
    if all(length is None for length in lengths):
        raise ArgumentError("StackedKvCache", "", "no active request", "at least one")
    for slot, length in enumerate(lengths):
        if length is not None:
            check_slot_length("StackedKvCache", slot, length + new, max_seq_len)
    starts = [length or 0 for length in lengths]
    columns = mx.array(starts, mx.int32)[:, None, None, None] + mx.arange(new)[:, None]
    visible = mx.arange(max(starts) + new) <= columns
    after = tuple(None if length is None else length + new for length in lengths)
    return StackedStep(mx.broadcast_to(columns, shape), visible, after)


class StackedKvCache(TinyKvCache):
    """One layer of up to `max_active_requests` requests; row b of the batch is the request in slot b.

    Every row begins at column 0. Columns after the end of a row are hidden by the mask; an idle row sees the
    token that was written into it. A request that would hold more than `max_seq_len` tokens is an
    ArgumentError. `columns` is shared by the layers of a model.
    """

    def __init__(self, max_active_requests: int, max_seq_len: int, columns: Columns | None = None):
        check_size("StackedKvCache", "max_active_requests", max_active_requests)
        check_size("StackedKvCache", "max_seq_len", max_seq_len)
        self.max_active_requests = max_active_requests
        self.max_seq_len = max_seq_len
        self._columns = Columns() if columns is None else columns
        self._lengths: list[int | None] = [None] * max_active_requests
        self._arrays: tuple[mx.array, mx.array] | None = None  # each [B, H, capacity, D]

    @property
    def storage(self) -> tuple[mx.array, mx.array] | None:
        return self._arrays

    def add_request(self, prefilled: TinyKvCache, id: int) -> None:
        """Move the tokens of a request into slot `id`; `prefilled` becomes empty."""
        check_slot("StackedKvCache", id, self.max_active_requests)
        check_slot_length("StackedKvCache", id, prefilled.offset, self.max_seq_len)
        tokens, length = prefilled.key_values, prefilled.offset
        if tokens is not None:
            self._reserve((self.max_active_requests, *tokens[0].shape[1:]), tokens[0].dtype)
        for side, array in enumerate(self._arrays or ()):
            if tokens is not None:
                array[id, :, :length] = tokens[side][0]
            # A hidden column has the weight 0, but 0 times a NaN that an earlier request left there is NaN.
            array[id, :, length:] = 0
        mx.eval(self._arrays)  # before the storage of the request is dropped, so that it is not kept
        self._lengths[id] = length
        prefilled.rewind(length)

    def remove_request(self, id: int) -> None:
        """Leave the slot `id` idle."""
        check_slot("StackedKvCache", id, self.max_active_requests)
        if self._lengths[id] is None:
            raise ArgumentError("StackedKvCache", "id", id, "a slot with a request")
        self._lengths[id] = None

    def release(self) -> None:
        """Release every request."""
        self._lengths = [None] * self.max_active_requests
        self._arrays = None

    def update_and_fetch(
        self, key: mx.array, value: mx.array, mask_length: int | None = None, mask: Mask = None
    ) -> Fetched:
        """Append row b of key and value [B, H, L, D] to slot b; return all tokens of all slots, and a mask.

        Keys and values are [B, H, S, D], S for the longest row; the bool mask [B, 1, L, S] is causal.
        """
        check_tokens("StackedKvCache", key, value)
        check_batch_mask("StackedKvCache", mask)
        step = self._columns.step(self._lengths, key.shape, self.max_seq_len)
        longest = step.visible.shape[-1]
        keys, values = self._reserve((*key.shape[:2], longest, key.shape[3]), key.dtype)
        keys = mx.put_along_axis(keys, step.columns, key, axis=2)
        values = mx.put_along_axis(values, step.columns, value, axis=2)
        self._arrays = keys, values
        self._lengths = list(step.lengths)
        return keys[:, :, :longest], values[:, :, :longest], None, step.visible

    def _reserve(self, shape: tuple[int, ...], dtype: mx.Dtype) -> tuple[mx.array, mx.array]:
        """Keys and values with space for [B, H, S, D] tokens."""
        if self._arrays is None:
            empty = mx.zeros((*shape[:2], 0, shape[3]), dtype)
            self._arrays = empty, empty
        stored = self._arrays[0]
        found, expected = (shape[1], shape[3], dtype), (stored.shape[1], stored.shape[3], stored.dtype)
        if found != expected:
            raise ArgumentError(
                "StackedKvCache", "key", f"{found} heads, head size, dtype", f"{expected} as before"
            )
        self._arrays = grown(self._arrays, shape[2])
        return self._arrays
