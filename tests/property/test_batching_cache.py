"""The cache of a batch under random sequences of calls: each request has exactly its own tokens."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tiny_llm.kv_cache import BatchingKvCache, TinyKvFullCache
from tiny_llm.paged_kv_cache import TinyKvPagedCache, TinyKvPagedPool

from ..support.cache_tokens import HEADS, SIZE, Source, Tokens, appended, assert_holds, assert_pages_hold
from ..support.page_pool import assert_consistent

LIMIT = 30


class BatchMachine(RuleBasedStateMachine):
    """Requests that join and leave a batch, dense or paged, compared with one array for each.

    A refused call, for example one beyond the limit, changes nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.source, self.pool = Source(), TinyKvPagedPool(page_size=4)
        self.batch = BatchingKvCache(3, LIMIT)
        self.known: list[Tokens | None] = [None] * 3

    @rule(slot=st.integers(0, 2), length=st.integers(1, 9), paged=st.booleans())
    def join(self, slot: int, length: int, paged: bool) -> None:
        """The slot may be taken."""
        cache = TinyKvPagedCache(self.pool) if paged else TinyKvFullCache()
        key, value = self.source.tokens(length)
        cache.update_and_fetch(mx.array(key), mx.array(value))
        self.batch.add_request(cache, slot)
        self.known[slot] = key

    @rule(slot=st.integers(0, 2))
    def refuse_a_long_one(self, slot: int) -> None:
        cache = TinyKvFullCache()
        cache.update_and_fetch(*map(mx.array, self.source.tokens(LIMIT + 1)))
        with pytest.raises(ValueError, match=f"got {LIMIT + 1} tokens .* max_seq_len, {LIMIT}"):
            self.batch.add_request(cache, slot)

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
        if reason := self._refusal(length):
            with pytest.raises(ValueError, match=reason):
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
        dense = any(isinstance(cache, TinyKvFullCache) for cache in self.batch.kv_caches)
        if reason := self._refusal(length) or ("without pages" if dense else ""):
            with pytest.raises(ValueError, match=reason):
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

    def _refusal(self, length: int) -> str:
        lengths = [row.shape[2] for row in self.known if row is not None]
        if not lengths:
            return "no active request"
        return "max_seq_len" if max(lengths) + length > LIMIT else ""

    def _grow(self, key: Tokens) -> None:
        for slot, known in enumerate(self.known):
            if known is not None:
                self.known[slot] = appended(known, key[slot : slot + 1])

    @invariant()
    def slots_and_pages_are_in_order(self) -> None:
        assert_consistent(self.pool)
        assert [cache is None for cache in self.batch.kv_caches] == [row is None for row in self.known]
        for cache, known in zip(self.batch.kv_caches, self.known, strict=True):
            assert known is None or cache.offset == known.shape[2]
        caches = [cache for cache in self.batch.kv_caches if isinstance(cache, TinyKvPagedCache)]
        assert sorted(page for cache in caches for page in cache.page_ids) == sorted(self.pool.used_page_ids)

    def teardown(self) -> None:
        self.batch.release()
        assert self.pool.used_page_ids == set()


TestBatch = BatchMachine.TestCase
TestBatch.settings = settings(max_examples=60, stateful_step_count=25)
