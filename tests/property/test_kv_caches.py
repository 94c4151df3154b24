"""Caches under any sequence of calls: what comes out is what went in, and no page is lost."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from tiny_llm.kv_cache import BatchingKvCache, TinyKvFullCache
from tiny_llm.kv_cache.full import BLOCK
from tiny_llm.paged_kv_cache import TinyKvPagedCache, TinyKvPagedPool

HEADS, SIZE = 2, 3
LENGTHS = st.one_of(st.integers(1, 9), st.sampled_from([BLOCK - 1, BLOCK, BLOCK + 1]))

Tokens = Any  # a NumPy array [rows, HEADS, tokens, SIZE]


class Source:
    """Numbers that never repeat, so that every token can be told from all others."""

    def __init__(self) -> None:
        self.next = 1

    def tokens(self, length: int, rows: int = 1) -> tuple[Tokens, Tokens]:
        count = rows * HEADS * length * SIZE
        key = np.arange(self.next, self.next + count, dtype=np.float32).reshape(rows, HEADS, length, SIZE)
        self.next += count
        return key, -key


def grown(known: Tokens | None, new: Tokens) -> Tokens:
    return new if known is None else np.concatenate([known, new], axis=2)


def assert_holds(pair: tuple[mx.array, mx.array], known: Tokens) -> None:
    assert np.array_equal(np.array(pair[0]), known)
    assert np.array_equal(np.array(pair[1]), -known)


def assert_pages_hold(metadata: Any, row: int, known: Tokens) -> None:
    """The tokens that the block table points to, read as a kernel reads them."""
    table, length = metadata.block_table[row].tolist(), metadata.context_lens[row].item()
    assert length == known.shape[2]
    used = -(-length // metadata.page_size)
    assert all(page >= 0 for page in table[:used])
    assert table[used:] == [-1] * (len(table) - used)
    pages = np.array(metadata.key_pages), np.array(metadata.value_pages)
    found = [np.concatenate([side[page] for page in table[:used]], axis=1)[None] for side in pages]
    assert np.array_equal(found[0][:, :, :length], known)
    assert np.array_equal(found[1][:, :, :length], -known)


class FullCacheMachine(RuleBasedStateMachine):
    """A cache of one request against an array that is copied at each step."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.cache = Source(), TinyKvFullCache()
        self.known: Tokens | None = None
        self.earlier: list[tuple[tuple[mx.array, mx.array], Tokens]] = []

    @rule(length=LENGTHS)
    def append(self, length: int) -> None:
        key, value = self.source.tokens(length)
        self.known = grown(self.known, key)
        *pair, offset, mask = self.cache.update_and_fetch(mx.array(key), mx.array(value), mask="causal")
        assert (offset, mask) == (self.known.shape[2], "causal")
        assert_holds(pair, self.known)
        self.earlier.append((pair, self.known))

    @precondition(lambda self: self.known is not None)
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        n = data.draw(st.integers(0, self.known.shape[2]))
        self.cache.rewind(n)
        kept = self.known.shape[2] - n
        self.known = self.known[:, :, :kept] if kept else None

    @rule(beyond=st.integers(1, 5))
    def refuse_to_rewind_too_far(self, beyond: int) -> None:
        with pytest.raises(ValueError, match="rewind"):
            self.cache.rewind(self.cache.offset + beyond)
        with pytest.raises(ValueError, match="rewind"):
            self.cache.rewind(-beyond)

    @invariant()
    def holds_what_went_in(self) -> None:
        if self.known is None:
            assert (self.cache.key_values, self.cache.offset) == (None, 0)
        else:
            assert_holds(self.cache.key_values, self.known)
            assert self.cache.offset == self.known.shape[2]

    def teardown(self) -> None:
        for pair, known in self.earlier:  # nothing that was given out has changed since
            assert_holds(pair, known)


class PagedMachine(RuleBasedStateMachine):
    """Several caches on one pool."""

    caches = Bundle("caches")

    def __init__(self) -> None:
        super().__init__()
        self.source, self.pool = Source(), TinyKvPagedPool(page_size=4)
        self.known: dict[TinyKvPagedCache, Tokens | None] = {}

    @rule(target=caches)
    def open(self) -> TinyKvPagedCache:
        cache = TinyKvPagedCache(self.pool)
        self.known[cache] = None
        return cache

    @rule(cache=caches, length=st.integers(1, 11))
    def append_and_gather(self, cache: TinyKvPagedCache, length: int) -> None:
        key, value = self.source.tokens(length)
        self.known[cache] = grown(self.known[cache], key)
        *pair, offset, mask = cache.update_and_fetch(mx.array(key), mx.array(value), mask="causal")
        assert (offset, mask) == (self.known[cache].shape[2], "causal")
        assert_holds(pair, self.known[cache])

    @rule(cache=caches, length=st.integers(1, 11))
    def append_and_point(self, cache: TinyKvPagedCache, length: int) -> None:
        key, value = self.source.tokens(length)
        self.known[cache] = grown(self.known[cache], key)
        metadata = cache.update_and_fetch_paged(mx.array(key), mx.array(value), mask="causal")
        assert (metadata.mask, metadata.page_size) == ("causal", 4)
        assert_pages_hold(metadata, 0, self.known[cache])

    @rule(cache=caches)
    def decode(self, cache: TinyKvPagedCache) -> None:
        """One token takes a page only when the last one is full."""
        before = len(self.pool.used_page_ids)
        full = cache.offset % 4 == 0
        self.append_and_point(cache, 1)
        assert len(self.pool.used_page_ids) == before + full

    @rule(cache=caches, data=st.data())
    def rewind(self, cache: TinyKvPagedCache, data: st.DataObject) -> None:
        n = data.draw(st.integers(0, cache.offset))
        cache.rewind(n)
        kept = cache.offset
        self.known[cache] = self.known[cache][:, :, :kept] if kept else None

    @rule(cache=consumes(caches))
    def close(self, cache: TinyKvPagedCache) -> None:
        cache.release()
        cache.release()
        assert (cache.offset, cache.page_ids, cache.page_lens) == (0, [], [])
        del self.known[cache]

    @invariant()
    def pages_belong_to_one_cache_or_are_free(self) -> None:
        self.pool.check()
        held = [page for cache in self.known for page in cache.page_ids]
        assert sorted(held) == sorted(self.pool.used_page_ids)
        for cache, known in self.known.items():
            assert cache.offset == sum(cache.page_lens) == (0 if known is None else known.shape[2])
            assert all(length == 4 for length in cache.page_lens[:-1])
            assert len(cache.page_lens) == cache.num_pages == -(-cache.offset // 4)
            if known is not None:
                assert_holds(cache.key_values, known)

    def teardown(self) -> None:
        for cache in self.known:
            cache.release()
        assert self.pool.num_free_pages == self.pool.num_pages


class BatchMachine(RuleBasedStateMachine):
    """Requests that join and leave a batch, dense or paged, against one array for each."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.pool = Source(), TinyKvPagedPool(page_size=4)
        self.batch = BatchingKvCache(3, 1000)
        self.known: list[Tokens | None] = [None] * 3

    @rule(slot=st.integers(0, 2), length=st.integers(1, 9), paged=st.booleans())
    def join(self, slot: int, length: int, paged: bool) -> None:
        """Also into a slot that is taken."""
        cache = TinyKvPagedCache(self.pool) if paged else TinyKvFullCache()
        key, value = self.source.tokens(length)
        cache.update_and_fetch(mx.array(key), mx.array(value))
        self.batch.add_request(cache, slot)
        self.known[slot] = key

    @rule(slot=st.integers(-2, 4))
    def leave(self, slot: int) -> None:
        if not 0 <= slot <= 2 or self.known[slot] is None:
            with pytest.raises(ValueError, match="id"):
                self.batch.remove_request(slot)
        else:
            self.batch.remove_request(slot)
            self.known[slot] = None

    @rule(length=st.integers(1, 5), mask=st.sampled_from([None, "causal"]))
    def step(self, length: int, mask: str | None) -> None:
        key, value = self.source.tokens(length, rows=3)
        if not any(row is not None for row in self.known):
            with pytest.raises(ValueError, match="no active request"):
                self.batch.update_and_fetch(mx.array(key), mx.array(value), mask=mask)
            return
        self._grow(key)
        keys, values, offset, hidden = self.batch.update_and_fetch(mx.array(key), mx.array(value), mask=mask)
        longest = max(row.shape[2] for row in self.known if row is not None)
        assert offset is None
        assert hidden.shape == (3, 1, length, longest)
        assert hidden.dtype == keys.dtype
        for slot, known in enumerate(self.known):
            total = 0 if known is None else known.shape[2]
            padded = np.zeros((1, HEADS, longest, SIZE), np.float32)
            padded[:, :, longest - total :] = 0 if known is None else known
            assert_holds((keys[slot : slot + 1], values[slot : slot + 1]), padded)
            allowed = np.zeros((length, longest), bool)
            allowed[:, longest - total :] = np.tri(length, total, total - length, dtype=bool)
            assert np.array_equal(np.array(hidden[slot, 0]), np.where(allowed, 0.0, -np.inf))

    @rule(length=st.integers(1, 5))
    def step_on_pages(self, length: int) -> None:
        key, value = self.source.tokens(length, rows=3)
        active = [cache for cache in self.batch.kv_caches if cache is not None]
        if not active or not all(isinstance(cache, TinyKvPagedCache) for cache in active):
            with pytest.raises(ValueError, match="expected"):
                self.batch.update_and_fetch_paged(mx.array(key), mx.array(value))
            return
        self._grow(key)
        metadata = self.batch.update_and_fetch_paged(mx.array(key), mx.array(value))
        for slot, known in enumerate(self.known):
            if known is None:
                assert metadata.context_lens[slot].item() == 0
                assert set(metadata.block_table[slot].tolist()) == {-1}
            else:
                assert_pages_hold(metadata, slot, known)

    def _grow(self, key: Tokens) -> None:
        for slot, known in enumerate(self.known):
            if known is not None:
                self.known[slot] = grown(known, key[slot : slot + 1])

    @invariant()
    def slots_and_pages_are_in_order(self) -> None:
        self.pool.check()
        assert [cache is None for cache in self.batch.kv_caches] == [row is None for row in self.known]
        caches = [cache for cache in self.batch.kv_caches if isinstance(cache, TinyKvPagedCache)]
        assert sorted(page for cache in caches for page in cache.page_ids) == sorted(self.pool.used_page_ids)

    def teardown(self) -> None:
        self.batch.release()
        assert self.pool.used_page_ids == set()


TRY = settings(deadline=None, derandomize=True, max_examples=60, stateful_step_count=25)
TestFullCache = FullCacheMachine.TestCase
TestFullCache.settings = TRY
TestPagedCache = PagedMachine.TestCase
TestPagedCache.settings = TRY
TestBatch = BatchMachine.TestCase
TestBatch.settings = TRY
