"""The block table is made when the pages change, and is the same array for all steps in between."""

import copy
from threading import Thread

import mlx.core as mx

from tiny_llm.cache.page_table import PageTable
from tiny_llm.kv_cache import BatchingKvCache
from tiny_llm.paged_kv_cache import TinyKvPagedCache, TinyKvPagedPool

from ..support.cases import normal

PAGE = 4


def append(cache, length, rows=1):
    tokens = normal(rows, 2, length, 8)
    return cache.update_and_fetch_paged(tokens, tokens)


def cache_of(pool, length):
    cache = TinyKvPagedCache(pool)
    append(cache, length)
    return cache


def test_a_step_within_a_page_finds_the_table_as_it_was():
    cache = cache_of(TinyKvPagedPool(PAGE), 5)
    first, second = append(cache, 1), append(cache, 1)
    assert second.block_table is first.block_table
    assert (first.context_lens.tolist(), second.context_lens.tolist()) == ([6], [7])


def test_a_step_that_takes_a_page_gets_a_new_table():
    cache = cache_of(TinyKvPagedPool(PAGE), 7)
    before, full, after = append(cache, 1), cache.block_table(), append(cache, 1)
    assert full is before.block_table
    assert after.block_table is not before.block_table
    assert (before.block_table.tolist(), after.block_table.tolist()) == ([[0, 1]], [[0, 1, 2]])


def test_each_page_of_one_token_is_in_the_next_table():
    cache = TinyKvPagedCache(TinyKvPagedPool(1))
    for length in range(1, 40):
        assert append(cache, 1).block_table.tolist() == [list(range(length))] == [cache.page_ids]


def test_a_rewind_within_a_page_leaves_the_table_and_one_over_pages_does_not():
    """The removed page may belong to another request now: an equal number of pages is not the same pages."""
    pool = TinyKvPagedPool(PAGE)
    cache = cache_of(pool, 10)
    table = cache.block_table()
    cache.rewind(1)
    assert cache.block_table() is table
    cache.rewind(1)
    assert cache.block_table().tolist() == [[0, 1]]
    cache_of(pool, 1)
    assert append(cache, 1).block_table.tolist() == [[0, 1, 3]]
    assert table.tolist() == [[0, 1, 2]]
    cache.release()
    assert cache.block_table().shape == (1, 0)
    assert cache.block_table().dtype == mx.int32
    assert append(cache, 1).block_table.tolist() == [cache.page_ids]


def test_a_table_has_the_given_width():
    cache = cache_of(TinyKvPagedPool(PAGE), 5)
    assert cache.block_table(4).tolist() == [[0, 1, -1, -1]]
    assert cache.block_table().tolist() == [[0, 1]]


def test_a_copy_of_a_cache_sees_the_pages_that_the_original_shares():
    cache = cache_of(TinyKvPagedPool(PAGE), 4)
    twin, apart = copy.copy(cache), copy.deepcopy(cache)
    append(cache, 1)
    assert twin.block_table().tolist() == [[0, 1]]
    assert apart.block_table().tolist() == [[0]]
    assert append(apart, 1).block_table.tolist() == [[0, 1]]


def test_a_batch_keeps_its_table_until_the_pages_of_a_slot_change():
    pool, batch = TinyKvPagedPool(PAGE), BatchingKvCache(3, 100)
    batch.add_request(cache_of(pool, 5), 2)
    batch.add_request(cache_of(pool, 2), 0)
    first, second = append(batch, 1, rows=3), append(batch, 1, rows=3)
    assert second.block_table is first.block_table
    assert second.block_table.tolist() == [[2, -1], [-1, -1], [0, 1]]
    assert second.context_lens.tolist() == [4, 0, 7]
    third = append(batch, 1, rows=3)  # slot 0 takes a page
    assert third.block_table.tolist() == [[2, 3], [-1, -1], [0, 1]]
    batch.kv_caches[2].rewind(6)
    assert append(batch, 1, rows=3).block_table.tolist() == [[2, 3], [-1, -1], [0, -1]]


def test_the_table_follows_requests_that_join_and_leave():
    """Also a request with the same number of pages as the previous one in the slot."""
    pool, batch = TinyKvPagedPool(PAGE), BatchingKvCache(2, 100)
    batch.add_request(cache_of(pool, 1), 0)
    assert append(batch, 1, rows=2).block_table.tolist() == [[0], [-1]]
    batch.add_request(cache_of(pool, 1), 1)
    assert append(batch, 1, rows=2).block_table.tolist() == [[0], [1]]
    batch.add_request(cache_of(pool, 1), 0)
    assert append(batch, 1, rows=2).block_table.tolist() == [[2], [1]]
    batch.remove_request(1)
    assert append(batch, 1, rows=2).block_table.tolist() == [[2], [-1]]


def test_a_table_without_pages_belongs_to_no_thread():
    made = []
    thread = Thread(target=lambda: made.append(PageTable().get([None, None], 0)))
    thread.start()
    thread.join()
    assert made[0].tolist() == [[], []]
