"""A decode step writes its token in place, without copies of earlier tokens."""

import copy

import mlx.core as mx
import pytest

import tiny_llm
from tiny_llm.attention import paged_attention
from tiny_llm.kv_cache import BatchingKvCache, TinyKvFullCache
from tiny_llm.models.cached_attention import attend_flash, attend_grouped, attend_paged
from tiny_llm.models.qkv import QKV
from tiny_llm.paged_kv_cache import TinyKvPagedCache, TinyKvPagedPool
from tiny_llm.positional_encoding import RoPE

from ..support.cases import normal

pytestmark = pytest.mark.usefixtures("on_the_cpu")

LENGTH = 3000
HEADS, SIZE = 2, 64
ROPE = RoPE(SIZE, 2 * LENGTH)
KEYS_AND_VALUES = 2 * 4 * HEADS * SIZE * LENGTH  # bytes of one request in one layer


def filled(cache, dtype=mx.float32):
    tokens = normal(1, HEADS, LENGTH, SIZE, dtype=dtype)
    cache.update_and_fetch(tokens, tokens)
    return cache


def step_through(layers, attend, x):
    """The queries of a layer, and its new keys and values, come from the attention of the layer before."""
    for cache in layers:
        token = x[:, :, :HEADS]
        attended = attend(QKV(x, token, token, ROPE, cache.offset), cache, "causal")
        x = mx.unflatten(attended, -1, (-1, SIZE))
    return x


def memory_of_steps(layers, attend, rows=1, steps=4, dtype=mx.float32) -> int:
    """The peak memory of a few steps beyond that before them; each step overlaps with the next."""
    x = normal(rows, 1, 4, SIZE, dtype=dtype)
    mx.eval(step_through(layers, attend, x), [cache.storage for cache in layers])
    mx.synchronize()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    results = []
    for _ in range(steps):
        x = step_through(layers, attend, x)
        mx.async_eval(x)
        results.append(x)
    mx.eval(results)
    return mx.get_peak_memory() - before


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16], ids=str)
@pytest.mark.parametrize("layers", [2, 12])
def test_layers_that_share_a_pool(layers, dtype):
    """No copy in another type, and none because the previous layer still reads the pool."""
    pool = TinyKvPagedPool(128)
    caches = [filled(TinyKvPagedCache(pool), dtype) for _ in range(layers)]
    assert memory_of_steps(caches, attend_paged, dtype=dtype) < KEYS_AND_VALUES / 4 * dtype.size / 4
    assert pool.key_pages.dtype == pool.value_pages.dtype == dtype


def test_a_step_writes_to_the_memory_of_the_pool():
    """Also where the writes are not evaluated one by one."""
    pool = TinyKvPagedPool(4)
    caches = [TinyKvPagedCache(pool) for _ in range(3)]
    for cache in caches:
        cache.update_and_fetch(normal(1, HEADS, 2, SIZE), normal(1, HEADS, 2, SIZE))
    before = copy.copy(pool.storage[0])  # another array with this memory
    mx.eval(step_through(caches, attend_paged, normal(1, 1, 4, SIZE)), pool.storage)
    assert mx.array_equal(before, pool.storage[0])


def test_attention_reads_pages_of_16_bits_where_they_are():
    cache = filled(TinyKvPagedCache(TinyKvPagedPool(128)), mx.bfloat16)
    query = normal(1, 4, 1, SIZE, dtype=mx.bfloat16)
    plan = tiny_llm.explain(paged_attention, query, **vars(cache.paged_metadata(mask="causal")))
    assert plan.fused
    assert plan.workspace_bytes < KEYS_AND_VALUES / 16


def test_what_was_read_from_pages_does_not_change():
    """A rewind and other tokens in the same slots, before the first result is looked at."""
    pool = TinyKvPagedPool(4)
    cache, tokens = TinyKvPagedCache(pool), normal(1, HEADS, 6, SIZE)
    dense, page = cache.update_and_fetch(tokens, tokens)[0], pool.read_page(0)[0]
    cache.rewind(6)
    cache.update_and_fetch(2 * tokens, 2 * tokens)
    mx.eval(pool.storage)
    assert mx.array_equal(dense, tokens)
    assert mx.array_equal(page, tokens[:, :, :4])


def test_a_deep_copy_of_a_pool_has_memory_of_its_own():
    cache, tokens = TinyKvPagedCache(TinyKvPagedPool(4)), normal(1, HEADS, 6, SIZE)
    cache.update_and_fetch(tokens, tokens)
    other = copy.deepcopy(cache)
    other.rewind(6)
    other.update_and_fetch(2 * tokens, 2 * tokens)
    assert mx.array_equal(cache.key_values[0], tokens)
    assert mx.array_equal(other.key_values[0], 2 * tokens)


@pytest.mark.parametrize("attend", [attend_flash, attend_grouped])
def test_requests_of_a_batch(attend):
    """Each attends to its own cache: no padded dense array of the batch is made."""
    batch = BatchingKvCache(4, 2 * LENGTH)
    for slot in (0, 1, 3):
        batch.add_request(filled(TinyKvFullCache()), slot)
    needed = memory_of_steps([batch], attend, rows=4, steps=1)
    assert needed < KEYS_AND_VALUES / 4


def test_a_batch_on_pages():
    pool = TinyKvPagedPool(128)
    layers = [BatchingKvCache(3, 2 * LENGTH) for _ in range(2)]
    for layer in layers:
        for slot in (0, 2):
            layer.add_request(filled(TinyKvPagedCache(pool)), slot)
    assert memory_of_steps(layers, attend_paged, rows=3) < KEYS_AND_VALUES / 4


@pytest.mark.parametrize("slots", [1, 3])
def test_a_step_started_while_the_previous_one_runs(slots):
    """As in decoding: no layer copies its cache, for one request and for a batch."""

    def layer():
        if slots == 1:
            return filled(TinyKvFullCache())
        batch = BatchingKvCache(slots, 2 * LENGTH)
        for slot in (0, 2):
            batch.add_request(filled(TinyKvFullCache()), slot)
        return batch

    layers = [layer() for _ in range(12)]
    x = normal(slots, 1, 4, SIZE)
    for cache in layers:
        requests = cache.kv_caches if slots > 1 else [cache]
        mx.eval([request.storage for request in requests if request is not None])
    mx.eval(step_through([layer()], attend_flash, x))  # ROPE makes its tables at first use
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    for _ in range(6):
        mx.async_eval(x)
        following = step_through(layers, attend_flash, x)
        mx.eval(x)
        x = following
    mx.eval(x)
    assert mx.get_peak_memory() - before < KEYS_AND_VALUES / 4


@pytest.mark.parametrize("first", ["the original", "the copy"])
def test_a_copy_of_a_cache_that_an_operation_grew(first):
    """One continues natively, the other with a prompt: each keeps its own tokens."""
    few, many = normal(1, 1, 4, SIZE), normal(1, 40, 4, SIZE, seed=5)

    def grown():
        cache = filled(TinyKvFullCache())
        mx.eval(step_through([cache], attend_flash, few))
        return cache

    original, alone, prompted = grown(), grown(), grown()
    twin = copy.copy(original)
    natively, other = (original, twin) if first == "the original" else (twin, original)
    mx.eval(step_through([other], attend_flash, many))
    mx.eval(step_through([prompted], attend_flash, many))
    mx.eval(step_through([natively], attend_flash, 2 * few), step_through([alone], attend_flash, 2 * few))
    for cache, expected in ((natively, alone), (other, prompted)):
        assert cache.offset == expected.offset
        for x, same in zip(cache.key_values, expected.key_values, strict=True):
            assert mx.array_equal(x, same)
