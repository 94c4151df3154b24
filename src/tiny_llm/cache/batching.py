"""The caches of several requests as one batch. Requests join and leave without a change to the others."""

from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import mlx.core as mx

from ..checks.types import check_size
from ..errors import ArgumentError
from ..ops.arguments import Mask
from .base import (
    Fetched,
    PagedKvMetadata,
    TinyKvCache,
    check_batch_mask,
    check_slot,
    check_slot_length,
    check_tokens,
)
from .page_table import PageTable
from .paged import TinyKvPagedCache, stored_pages


class BatchingKvCache(TinyKvCache):
    """One layer of up to `max_active_requests` requests; row b of the batch is the request in slot b.

    A request that would hold more than `max_seq_len` tokens is an ArgumentError.
    """

    def __init__(self, max_active_requests: int, max_seq_len: int):
        check_size("BatchingKvCache", "max_active_requests", max_active_requests)
        check_size("BatchingKvCache", "max_seq_len", max_seq_len)
        self.max_active_requests = max_active_requests
        self.max_seq_len = max_seq_len
        self.kv_caches: list[TinyKvCache | None] = [None] * max_active_requests
        self.HD: tuple[int, int] | None = None
        self._table = PageTable()

    def add_request(self, prefilled: TinyKvCache, id: int) -> None:
        """Put the cache of a request into slot `id`; a cache that is there already is released."""
        check_slot("BatchingKvCache", id, self.max_active_requests)
        check_slot_length("BatchingKvCache", id, prefilled.offset, self.max_seq_len)
        if prefilled.storage is not None:
            self._check_heads(prefilled.storage[0].shape)
        if self.kv_caches[id] is not None:
            self.remove_request(id)
        self.kv_caches[id] = prefilled

    def remove_request(self, id: int) -> None:
        """Release the cache in slot `id` and leave the slot idle."""
        check_slot("BatchingKvCache", id, self.max_active_requests)
        cache = self.kv_caches[id]
        if cache is None:
            raise ArgumentError("BatchingKvCache", "id", id, "a slot with a request")
        self.kv_caches[id] = None
        cache.release()

    @contextmanager
    def writing(self) -> Iterator[list[mx.array]]:
        results: list[mx.array] = []
        with ExitStack() as blocks:
            of_caches = [blocks.enter_context(cache.writing()) for cache in self._active().values()]
            try:
                yield results
            finally:
                for each in of_caches:
                    each += results

    def release(self) -> None:
        """Release every request."""
        for slot in self._active():
            self.remove_request(slot)

    def active_caches(self, tokens: tuple[int, ...], mask: Mask) -> dict[int, TinyKvCache]:
        """The active slots and their caches, checked to take new tokens of shape `tokens` [B, H, L, D]."""
        check_batch_mask("BatchingKvCache", mask)
        if tokens[0] != self.max_active_requests:
            raise ArgumentError("BatchingKvCache", "key", f"{tokens[0]} rows", self.max_active_requests)
        active = self._active()
        if not active:
            raise ArgumentError("BatchingKvCache", "", "no active request", "at least one")
        for slot, cache in active.items():
            check_slot_length("BatchingKvCache", slot, cache.offset + tokens[2], self.max_seq_len)
        self._check_heads(tokens)
        return active

    def update_and_fetch(
        self, keys: mx.array, values: mx.array, mask_length: int | None = None, mask: Mask = None
    ) -> Fetched:
        """Append row b of keys and values [B, H, L, D] to slot b, and return all tokens of all slots.

        Keys and values are [B, H, Smax, D], right aligned and padded with zeros on the left. The mask
        [B, 1, mask_length, Smax] is causal in each row and hides the padding; an idle row is fully masked.
        """
        check_tokens("BatchingKvCache", keys, values)
        active = self.active_caches(keys.shape, mask)
        empty = keys[:1, :, :0]
        rows_of_keys, rows_of_values = [empty] * keys.shape[0], [empty] * keys.shape[0]
        for slot, cache in active.items():
            row = slice(slot, slot + 1)
            fetched = cache.update_and_fetch(keys[row], values[row])
            rows_of_keys[slot], rows_of_values[slot] = fetched[:2]
        lengths = [row.shape[2] for row in rows_of_keys]
        rows = keys.shape[2] if mask_length is None else mask_length
        causal = _right_aligned_causal_mask(rows, lengths, keys.dtype)
        return _right_aligned(rows_of_keys), _right_aligned(rows_of_values), None, causal

    def update_and_fetch_paged(
        self, keys: mx.array, values: mx.array, mask_length: int | None = None, mask: Mask = None
    ) -> PagedKvMetadata:
        """Append row b of keys and values [B, H, L, D] to slot b, and return the pages of all tokens."""
        check_tokens("BatchingKvCache", keys, values)
        active = self.active_caches(keys.shape, mask)
        paged = {slot: cache for slot, cache in active.items() if isinstance(cache, TinyKvPagedCache)}
        if len(paged) < len(active):
            raise ArgumentError("BatchingKvCache", "", "a cache without pages in a slot", "TinyKvPagedCache")
        caches = list(paged.values())
        if len({cache.pool for cache in caches}) > 1:
            raise ArgumentError("BatchingKvCache", "", "caches of several pools", "one pool")
        pool, length = caches[0].pool, keys.shape[2]
        pool.check_shape(keys.shape, keys.dtype)  # before a page is allocated
        slots = array("q")
        for cache in caches:
            cache.extend(length)
            slots += cache.newest_slots(length)
        if len(paged) < keys.shape[0]:
            active_rows = mx.array(list(paged))
            keys, values = keys[active_rows], values[active_rows]
        pool.write_lazily(slots, keys, values)
        rows = [paged.get(slot) for slot in range(self.max_active_requests)]
        width = max(cache.num_pages for cache in caches)
        table = self._table.get([None if row is None else row.pages for row in rows], width)
        lengths = [0 if row is None else row.offset for row in rows]
        return PagedKvMetadata(
            *stored_pages(pool),
            table,
            mx.array(lengths, dtype=mx.int32),
            caches[0].page_size,
            "causal",
        )

    def _active(self) -> dict[int, TinyKvCache]:
        return {slot: cache for slot, cache in enumerate(self.kv_caches) if cache is not None}

    def _check_heads(self, tokens: tuple[int, ...]) -> None:
        found = (tokens[1], tokens[3])
        if self.HD is not None and found != self.HD:
            raise ArgumentError(
                "BatchingKvCache", "key", f"{found} heads and head size", f"{self.HD} as before"
            )
        self.HD = found


def make_batch_cache(model: Any, size: int, max_seq_len: int) -> list[Any]:
    """One cache per layer; models of others get the batching cache of the course."""
    if hasattr(model, "create_batch_cache"):
        made: list[Any] = model.create_batch_cache(size, max_seq_len)
        return made
    return [BatchingKvCache(size, max_seq_len) for _ in range(model.num_hidden_layers)]


def _right_aligned(rows: list[mx.array]) -> mx.array:
    """Rows [1, H, S_b, D] -> [B, H, Smax, D], the shorter ones padded with zeros on the left."""
    longest = max(row.shape[2] for row in rows)
    return mx.concatenate(
        [mx.pad(row, [(0, 0), (0, 0), (longest - row.shape[2], 0), (0, 0)]) for row in rows]
    )


def _right_aligned_causal_mask(rows: int, lengths: list[int], dtype: mx.Dtype) -> mx.array:
    """[B, 1, rows, Smax] of 0 and -inf. All rows end at the same column, so they share one diagonal."""
    longest = max(lengths)
    column = mx.arange(longest)
    past = column <= mx.arange(rows)[:, None] + (longest - rows)
    token = column >= longest - mx.array(lengths)[:, None, None, None]
    return mx.where(past & token, 0.0, -mx.inf).astype(dtype)
