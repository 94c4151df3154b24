"""Week 3, day 1: keys and values in pages of a pool, instead of one array for each request."""

import mlx.core as mx
import pytest

from tiny_llm.cache.page_table import PageIds, PageTable

from .support.cases import normal
from .support.models import decoder
from .support.models.checkpoints import checkpoint, tokens
from .support.models.logits import assert_logits
from .support.page_pool import assert_consistent
from .tiny_llm_base import (
    BatchingKvCache,
    Qwen2ModelWeek2,
    Qwen2ModelWeek3,
    TinyKvFullCache,
    TinyKvPagedCache,
    TinyKvPagedPool,
    scaled_dot_product_attention_grouped,
)
from .utils import in_each_precision

in_pages_of = pytest.mark.parametrize("page_size", [1, 7, 128])


def keys_and_values(length, seed=0, dtype=mx.float32):
    key = normal(1, 2, length, 8, seed=seed, dtype=dtype)
    return key, -key


def test_task_1_pool_allocates_and_frees_pages():
    """A freed page is used again before a new one is made."""
    pool = TinyKvPagedPool(page_size=4)
    assert (pool.page_size, pool.key_pages, pool.value_pages) == (4, None, None)
    first, second = pool.allocate_page(), pool.allocate_page()
    assert first != second
    assert pool.used_page_ids == {first, second}
    assert (pool.num_pages, pool.num_allocated_pages, pool.num_free_pages) == (2, 2, 0)
    pool.free_page(first)
    assert (pool.free_page_ids, pool.num_free_pages) == ([first], 1)
    assert pool.used_page_ids == {second}
    assert pool.allocate_page() == first
    assert pool.num_pages == 2
    assert_consistent(pool)


@in_each_precision
def test_task_1_pool_writes_a_slice_of_a_page(precision):
    """Other slots and other pages keep what they hold."""
    pool = TinyKvPagedPool(page_size=7)
    a, b = pool.allocate_page(), pool.allocate_page()
    key, value = keys_and_values(7, dtype=precision)
    pool.write_page_slice(a, 0, key, value)
    pool.write_page_slice(b, 3, key[:, :, :2], value[:, :, :2])
    pool.write_page_slice(a, 5, value[:, :, :1], key[:, :, :1])
    written = mx.concatenate([key[:, :, :5], value[:, :, :1], key[:, :, 6:]], axis=2)
    assert mx.array_equal(pool.read_page(a)[0], written)
    assert mx.array_equal(pool.read_page(a)[1], -written)
    assert mx.array_equal(pool.read_page(b)[0][:, :, 3:5], key[:, :, :2])
    assert pool.key_pages.shape == pool.value_pages.shape == (2, 2, 7, 8)
    assert pool.key_pages.dtype == precision


def test_task_1_pool_grows_and_keeps_its_content():
    """Readers see exactly the pages that were made, however many the storage has room for."""
    pool = TinyKvPagedPool(page_size=4)
    key, value = keys_and_values(4 * 40)
    for page in range(40):
        assert pool.allocate_page() == page
        part = slice(4 * page, 4 * page + 4)
        pool.write_page_slice(page, 0, key[:, :, part], value[:, :, part])
        assert pool.key_pages.shape[0] == pool.value_pages.shape[0] == pool.num_pages == page + 1
    assert mx.array_equal(mx.flatten(pool.key_pages.swapaxes(0, 1), 1, 2)[None], key)
    assert mx.array_equal(mx.flatten(pool.value_pages.swapaxes(0, 1), 1, 2)[None], value)


@pytest.mark.usefixtures("on_the_cpu")  # MLX on a GPU may copy an array that a running kernel still reads
def test_task_1_pool_writes_in_place():
    """One token goes into a storage of 16 MB, and nothing else moves."""
    pool = TinyKvPagedPool(page_size=128)
    key = mx.ones((1, 8, 128, 128))
    for _ in range(16):
        pool.write_page_slice(pool.allocate_page(), 0, key, key)
    mx.eval(pool.key_pages, pool.value_pages)
    mx.synchronize()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    for slot in range(8):
        pool.write_page_slice(5, slot, 2 * key[:, :, :1], 3 * key[:, :, :1])
        mx.eval(pool.read_page(5))
    assert mx.get_peak_memory() - before < 4 * 2**20
    assert pool.key_pages.sum().item() == 8 * 128 * (16 * 128 + 8)


def test_task_1_pool_refuses_invalid_arguments():
    """Pages that are not in use, slots outside a page, arrays unlike the first one written."""
    with pytest.raises(ValueError, match="page_size: got 0"):
        TinyKvPagedPool(0)
    pool = TinyKvPagedPool(page_size=4)
    page = pool.allocate_page()
    with pytest.raises(ValueError, match="before the first read"):
        pool.read_page(page)
    key, value = keys_and_values(4)
    pool.write_page_slice(page, 0, key, value)
    for wrong in (-1, 1):
        with pytest.raises(ValueError, match=f"page_id: got {wrong}"):
            pool.read_page(wrong)
        with pytest.raises(ValueError, match=f"page_id: got {wrong}"):
            pool.write_page_slice(wrong, 0, key, value)
        with pytest.raises(ValueError, match=f"page_id: got {wrong}"):
            pool.free_page(wrong)
    for start, arrays in [
        (1, (key, value)),
        (-1, (key[:, :, :1], value[:, :, :1])),
        (0, (key[:, :, :0], value[:, :, :0])),
        (0, (key[:, :1], value[:, :1])),
        (0, (key[..., :4], value[..., :4])),
        (0, (key.astype(mx.float16), value.astype(mx.float16))),
        (0, (mx.repeat(key, 2, axis=0), mx.repeat(value, 2, axis=0))),
        (0, (key, value[:, :, :3])),
    ]:
        with pytest.raises(ValueError, match="TinyKvPagedPool: "):
            pool.write_page_slice(page, start, *arrays)
    assert mx.array_equal(pool.read_page(page)[0], key)
    pool.free_page(page)
    with pytest.raises(ValueError, match="expected a page in use"):
        pool.free_page(page)
    with pytest.raises(ValueError, match="expected a page in use"):
        pool.write_page_slice(page, 0, key, value)


def test_task_2_block_table_has_a_row_for_each_request():
    """The pages in the order of the text, then -1; a row without a request has only -1."""
    long, short = PageIds(), PageIds()
    for page in (5, 0, 2):
        long.append(page)
    short.append(3)
    table = PageTable().get([long, None, short], width=4)
    assert table.dtype == mx.int32
    assert table.tolist() == [[5, 0, 2, -1], [-1, -1, -1, -1], [3, -1, -1, -1]]
    assert PageTable().get([PageIds()], width=0).shape == (1, 0)


@in_pages_of
def test_task_2_paged_cache_returns_all_tokens(page_size):
    """The last page is filled up before another one is taken."""
    pool = TinyKvPagedPool(page_size)
    cache = TinyKvPagedCache(pool)
    key, value = keys_and_values(300)
    start = 0
    for length in (1, 5, 1, 130, 1, 162):
        part = slice(start, start + length)
        start += length
        keys, values, offset, mask = cache.update_and_fetch(
            key[:, :, part], value[:, :, part], length, "causal"
        )
        assert (offset, cache.offset, mask) == (start, start, "causal")
        assert mx.array_equal(keys, key[:, :, :start])
        assert mx.array_equal(values, value[:, :, :start])
        assert cache.num_pages == len(cache.page_ids) == len(pool.used_page_ids) == -(-start // page_size)
        assert cache.page_lens[:-1] == [page_size] * (cache.num_pages - 1)
        assert sum(cache.page_lens) == start
    assert_consistent(pool)


def test_task_2_paged_cache_reads_its_pages_in_their_order():
    """Freed pages are reused in any order; page ids are not in the order of tokens."""
    pool = TinyKvPagedPool(page_size=4)
    pages = [pool.allocate_page() for _ in range(4)]
    for index in (2, 0, 3, 1):
        pool.free_page(pages[index])
    cache = TinyKvPagedCache(pool)
    key, value = keys_and_values(14)
    keys, values, *_ = cache.update_and_fetch(key, value)
    assert cache.page_ids != sorted(cache.page_ids)
    assert mx.array_equal(keys, key)
    assert mx.array_equal(values, value)


def test_task_2_paged_caches_share_a_pool():
    """Two requests that grow in turns have pages in turns, and neither touches the other's."""
    pool = TinyKvPagedPool(page_size=4)
    caches = TinyKvPagedCache(pool), TinyKvPagedCache(pool)
    arrays = keys_and_values(30, seed=1), keys_and_values(30, seed=2)
    for start in range(0, 30, 3):
        for cache, (key, value) in zip(caches, arrays, strict=True):
            cache.update_and_fetch(key[:, :, start : start + 3], value[:, :, start : start + 3])
    assert not set(caches[0].page_ids) & set(caches[1].page_ids)
    for cache, (key, value) in zip(caches, arrays, strict=True):
        assert mx.array_equal(cache.key_values[0], key)
        assert mx.array_equal(cache.key_values[1], value)


def test_task_2_paged_cache_rewinds_over_pages():
    """Whole pages after the new end are freed, the last one is cut; rewinding all tokens frees all pages."""
    pool = TinyKvPagedPool(page_size=4)
    cache = TinyKvPagedCache(pool)
    key, value = keys_and_values(10)
    cache.update_and_fetch(key, value)
    cache.rewind(0)
    cache.rewind(1)
    assert (cache.page_lens, pool.num_free_pages) == ([4, 4, 1], 0)
    cache.rewind(3)
    assert (cache.offset, cache.page_lens, pool.num_free_pages) == (6, [4, 2], 1)
    assert mx.array_equal(cache.key_values[0], key[:, :, :6])
    cache.rewind(2)
    assert (cache.page_lens, pool.num_free_pages) == ([4], 2)
    for n in (-1, 5):
        with pytest.raises(ValueError, match=f"rewind: got {n}, expected 0 to 4"):
            cache.rewind(n)
    cache.rewind(4)
    assert (cache.offset, cache.page_ids, cache.key_values) == (0, [], None)
    assert pool.num_free_pages == pool.num_pages == 3
    assert_consistent(pool)


def test_task_2_paged_cache_releases_its_pages_once():
    """The second time there is nothing to give back; and the cache can be used again."""
    pool = TinyKvPagedPool(page_size=4)
    cache, other = TinyKvPagedCache(pool), TinyKvPagedCache(pool)
    key, value = keys_and_values(10)
    cache.update_and_fetch(key, value)
    other.update_and_fetch(key, value)
    cache.release()
    cache.release()
    assert (cache.offset, cache.page_ids, cache.page_lens) == (0, [], [])
    assert pool.used_page_ids == set(other.page_ids)
    cache.update_and_fetch(key, value)
    assert pool.num_pages == 6
    assert_consistent(pool)


def test_task_2_paged_cache_refuses_invalid_arguments():
    """A batch, and arrays unlike those of the pool; no page is taken for them."""
    pool = TinyKvPagedPool(page_size=4)
    cache = TinyKvPagedCache(pool)
    key, value = keys_and_values(3)
    with pytest.raises(ValueError, match="one row"):
        cache.update_and_fetch(mx.repeat(key, 2, axis=0), mx.repeat(value, 2, axis=0))
    cache.update_and_fetch(key, value)
    with pytest.raises(ValueError, match="as the first one written"):
        TinyKvPagedCache(pool).update_and_fetch(key[:, :1], value[:, :1])
    with pytest.raises(ValueError, match="max_pages: got 0"):
        cache.block_table(max_pages=0)
    with pytest.raises(ValueError, match="no tokens yet"):
        TinyKvPagedCache(TinyKvPagedPool()).gather_dense()
    assert (cache.offset, pool.num_pages) == (3, 1)


@in_pages_of
@in_each_precision
def test_task_3_gathered_tokens_are_as_good_as_dense_ones(page_size, precision):
    """Attention to what was gathered is, bit for bit, attention to what a full cache holds."""
    key, value = keys_and_values(131, dtype=precision)
    query = normal(1, 4, 33, 8, dtype=precision, seed=9)
    paged, full = TinyKvPagedCache(TinyKvPagedPool(page_size)), TinyKvFullCache()
    for cache in (paged, full):
        cache.update_and_fetch(key[:, :, :98], value[:, :, :98])
    results = [
        scaled_dot_product_attention_grouped(query, *fetched[:2], mask="causal")
        for fetched in (cache.update_and_fetch(key[:, :, 98:], value[:, :, 98:]) for cache in (paged, full))
    ]
    assert mx.array_equal(*results)
    assert mx.array_equal(paged.gather_dense()[0], key)


def test_task_3_batch_takes_paged_caches_as_well():
    """For attention to dense arrays, a batch gathers the pages."""
    pool = TinyKvPagedPool(page_size=4)
    batches = BatchingKvCache(2, 100), BatchingKvCache(2, 100)
    for slot, length in enumerate((9, 3)):
        for batch, cache in zip(batches, (TinyKvPagedCache(pool), TinyKvFullCache()), strict=True):
            cache.update_and_fetch(*keys_and_values(length, seed=slot))
            batch.add_request(cache, slot)
    new = normal(2, 2, 1, 8, seed=9)
    paged, full = (batch.update_and_fetch(new, -new) for batch in batches)
    assert all(mx.array_equal(a, b) for a, b in zip(paged, full, strict=True) if a is not None)
    for slot in range(2):
        batches[0].remove_request(slot)
    assert pool.num_free_pages == pool.num_pages


def test_task_3_model_has_one_pool_for_all_layers():
    """A request takes its pages when it needs them, layer by layer; the model of week 2 gathers them."""
    weights, inputs = checkpoint(), tokens(1, 20)
    model = Qwen2ModelWeek3(weights, page_size=8, dtype=mx.float32)
    assert (model.page_size, model.page_pool.page_size) == (8, 8)
    cache = model.create_kv_cache()
    assert [type(layer) for layer in cache] == [TinyKvPagedCache] * 3
    assert all(layer.pool is model.page_pool for layer in cache)
    assert model.page_pool.num_pages == 0
    dense = Qwen2ModelWeek2(weights, dtype=mx.float32)
    assert_logits(dense(inputs, 0, cache), decoder.logits(inputs, weights))
    assert len(model.page_pool.used_page_ids) == 9
    assert model.page_pool.key_pages.dtype == mx.float32
    for layer in cache:
        layer.release()
    assert model.page_pool.num_free_pages == 9
    assert Qwen2ModelWeek3(weights).page_size == 128
