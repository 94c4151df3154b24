"""One pool of pages in many threads: nothing is lost, and no copy is made in the middle of a change."""

import copy
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import TinyKvPagedCache, TinyKvPagedPool

from ..support.cases import normal
from ..support.processes.thread import in_a_thread


@pytest.mark.usefixtures("on_the_cpu")
def test_tokens_that_threads_append_to_caches_of_one_pool_are_all_there():
    pool = TinyKvPagedPool(page_size=4)
    caches = [TinyKvPagedCache(pool) for _ in range(4)]
    rows = [normal(1, 2, 6, 8, seed=seed) for seed in range(4)]
    mx.eval(rows)
    for cache, row in zip(caches, rows, strict=True):
        in_a_thread(lambda cache=cache, row=row: cache.append(row, 2 * row))
    assert pool.storage is not None
    for cache, row in zip(caches, rows, strict=True):
        keys, values = cache.gather_dense()
        assert np.array_equal(np.array(keys), np.array(row))
        assert np.array_equal(np.array(values), np.array(2 * row))


def test_a_pool_is_not_copied_while_another_thread_works_on_it():
    pool = TinyKvPagedPool(page_size=4)
    row = normal(1, 2, 3, 8)
    pool.write_page_slice(pool.allocate_page(), 0, row, row)
    with ThreadPoolExecutor(1) as thread:
        with pool.writing():
            copying = thread.submit(copy.deepcopy, pool)
            with pytest.raises(TimeoutError):
                copying.result(timeout=0.2)
            page = pool.allocate_page()
        copied = copying.result(timeout=60)
    assert copied.used_page_ids == {0, page}
    copied.free_page(page)
    assert pool.used_page_ids == {0, page}
    assert np.array_equal(np.array(copied.read_page(0)[0]), np.array(pool.read_page(0)[0]))


def test_pages_that_threads_have_written_are_read_in_others():
    pool = TinyKvPagedPool(page_size=4)
    rows = [normal(1, 2, length, 8, seed=length) for length in (3, 4, 1)]
    mx.eval(rows)
    for row in rows:
        in_a_thread(lambda row=row: pool.write_page_slice(pool.allocate_page(), 0, row, 2 * row))
    for page, row in enumerate(rows):
        keys, values = in_a_thread(lambda page=page: [np.array(array) for array in pool.read_page(page)])
        assert np.array_equal(keys[:, :, : row.shape[2]], np.array(row))
        assert np.array_equal(values, 2 * keys)


@pytest.mark.parametrize("copied_by", [copy.copy, copy.deepcopy])
def test_a_copy_of_a_pool_takes_and_frees_pages_of_its_own(copied_by):
    pool = TinyKvPagedPool(page_size=4)
    kept, freed = pool.allocate_page(), pool.allocate_page()
    pool.free_page(freed)
    other = copied_by(pool)
    assert other.allocate_page() == freed
    assert (pool.free_page_ids, pool.used_page_ids) == ([freed], {kept})
    other.free_page(kept)
    assert (pool.free_page_ids, pool.used_page_ids) == ([freed], {kept})
