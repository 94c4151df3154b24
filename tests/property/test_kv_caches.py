"""Caches under random sequences of calls: they return the appended tokens, and no page is lost."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from tiny_llm.attention import paged_attention
from tiny_llm.cache.full import BLOCK
from tiny_llm.kv_cache import TinyKvFullCache
from tiny_llm.paged_kv_cache import TinyKvPagedCache, TinyKvPagedPool

from ..support.cache_tokens import HEADS, SIZE, Source, Tokens, appended, assert_holds, assert_pages_hold
from ..support.page_pool import assert_consistent

LENGTHS = st.one_of(st.integers(1, 9), st.sampled_from([BLOCK - 1, BLOCK, BLOCK + 1]))


class FullCacheMachine(RuleBasedStateMachine):
    """A cache of one request, compared with an array that is copied at each step."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.cache = Source(), TinyKvFullCache()
        self.known: Tokens | None = None
        self.earlier: list[tuple[tuple[mx.array, mx.array], Tokens]] = []

    @rule(length=LENGTHS)
    def append(self, length: int) -> None:
        key, value = self.source.tokens(length)
        self.known = appended(self.known, key)
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
    def holds_the_appended_tokens(self) -> None:
        if self.known is None:
            assert (self.cache.key_values, self.cache.offset) == (None, 0)
        else:
            assert_holds(self.cache.key_values, self.known)
            assert self.cache.offset == self.known.shape[2]

    def teardown(self) -> None:
        for pair, known in self.earlier:  # arrays returned earlier have not changed
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
        self.known[cache] = appended(self.known[cache], key)
        *pair, offset, mask = cache.update_and_fetch(mx.array(key), mx.array(value), mask="causal")
        assert (offset, mask) == (self.known[cache].shape[2], "causal")
        assert_holds(pair, self.known[cache])

    @rule(cache=caches, length=st.integers(1, 11))
    def append_paged(self, cache: TinyKvPagedCache, length: int) -> None:
        key, value = self.source.tokens(length)
        self.known[cache] = appended(self.known[cache], key)
        metadata = cache.update_and_fetch_paged(mx.array(key), mx.array(value), mask="causal")
        assert (metadata.mask, metadata.page_size) == ("causal", 4)
        assert_pages_hold(metadata, 0, self.known[cache])

    @rule(cache=caches)
    def decode(self, cache: TinyKvPagedCache) -> None:
        """One token takes a page only when the last one is full."""
        before = len(self.pool.used_page_ids)
        full = cache.offset % 4 == 0
        self.append_paged(cache, 1)
        assert len(self.pool.used_page_ids) == before + full

    @rule(cache=caches, data=st.data())
    def rewind(self, cache: TinyKvPagedCache, data: st.DataObject) -> None:
        n = data.draw(st.integers(0, cache.offset))
        cache.rewind(n)
        kept = cache.offset
        self.known[cache] = self.known[cache][:, :, :kept] if kept else None

    @rule()
    def leave_nan_in_a_free_page(self) -> None:
        """The next cache that takes the page fills it token by token; the rest of the page stays NaN."""
        page, nothing = self.pool.allocate_page(), mx.full((1, HEADS, 4, SIZE), mx.nan)
        self.pool.write_page_slice(page, 0, nothing, nothing)
        self.pool.free_page(page)

    @rule(cache=caches, length=st.integers(1, 6))
    def attend(self, cache: TinyKvPagedCache, length: int) -> None:
        """A query of zeros gives the mean of the values of its context, without leftovers of other caches."""
        self.append_paged(cache, length)
        metadata = cache.paged_metadata(mask="causal")
        with mx.stream(mx.cpu):
            found = paged_attention(mx.zeros((1, HEADS, length, SIZE)), **vars(metadata))
        values, total = -self.known[cache], self.known[cache].shape[2]
        for row in range(length):
            average = values[:, :, : total - length + row + 1].mean(axis=2)
            np.testing.assert_allclose(np.array(found[:, :, row]), average, rtol=1e-5)

    @rule(cache=consumes(caches))
    def close(self, cache: TinyKvPagedCache) -> None:
        cache.release()
        cache.release()
        assert (cache.offset, cache.page_ids, cache.page_lens) == (0, [], [])
        del self.known[cache]

    @invariant()
    def pages_belong_to_one_cache_or_are_free(self) -> None:
        assert_consistent(self.pool)
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


TRY = settings(max_examples=60, stateful_step_count=25)
TestFullCache = FullCacheMachine.TestCase
TestFullCache.settings = TRY
TestPagedCache = PagedMachine.TestCase
TestPagedCache.settings = TRY
