"""Attention with caches is bitwise equal to rotation, slice update and attention one by one."""

import mlx.core as mx
import pytest

from tiny_llm.runtime.extension import load_extension

from ...support.attention.cached import (
    HEADS,
    KV_HEADS,
    SIZE,
    attend,
    case,
    filled_cache,
    flat,
    new_tokens,
    one_by_one,
    table_of,
)
from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.covering import pairwise
from ...support.rows import LAYOUTS

pytestmark = pytest.mark.filterwarnings("ignore:flash_attention. falling back")  # heads of 300
cached_attention = load_extension().cached_attention
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)


def check(tokens, caches, offset, **options):
    """Both ways give the same, and neither changes the caches passed in."""
    table = table_of(tokens[0].shape[-1])
    kept = [mx.array(x) for cache in caches if cache for x in cache[:2]]
    mx.eval(kept)
    expected = flat(one_by_one(*tokens, caches, table, offset, **options))
    got = flat(attend(*tokens, caches, offset, **options))
    mx.eval(got)
    assert [x.dtype for x in got] == [x.dtype for x in expected]
    assert [x.shape for x in got] == [x.shape for x in expected]
    for x, same in zip(got, expected, strict=True):
        assert mx.array_equal(x, same)
    for x, same in zip((x for cache in caches if cache for x in cache[:2]), kept, strict=True):
        assert mx.array_equal(x, same)
    return got


@pairwise({"L": range(1, 10), "heads": [(4, 4), (4, 2), (14, 2), (7, 1)], "dtype": DTYPES})
def test_each_number_of_tokens_and_heads(L, heads, dtype):
    check(*case([33], L, *heads, dtype=dtype), 33)


@each_dtype
@pytest.mark.parametrize("size", [2, 18, 64, 80, 128, 256])
@pytest.mark.parametrize("traditional", [False, True])
def test_each_head_size(size, traditional, dtype):
    check(*case([21, 0], 3, size=size, dtype=dtype), [21, 0], traditional=traditional)


@each_dtype
@pytest.mark.parametrize("length", [0, 1, 1023, 1024, 4097])
@pytest.mark.parametrize("L", [1, 7])
def test_each_length(L, length, dtype):
    """Threads share thousands of keys."""
    check(*case([length], L, dtype=dtype), length)


@each_dtype
@pytest.mark.parametrize("L", [1, 4])
def test_caches_of_different_lengths_and_idle_rows(L, dtype):
    lengths = [None, 5, 0, None, None, 3000, 77, None]
    got = check(*case(lengths, L, dtype=dtype), [length or 0 for length in lengths])
    for row, length in enumerate(lengths):
        assert mx.all(got[0][row] == 0).item() is (length is None)


def test_rows_without_any_cache():
    (out,) = check(*case([None, None], 2), 4)
    assert mx.all(out == 0)


@each_dtype
def test_several_rows_in_one_cache_beside_others(dtype):
    caches = [
        filled_cache(50, 40, KV_HEADS, SIZE, rows=3, dtype=dtype),
        None,
        filled_cache(12, 9, KV_HEADS, SIZE, rows=2, dtype=dtype, seed=9),
    ]
    check(new_tokens(6, 3, HEADS, KV_HEADS, SIZE, dtype), caches, [40, 2, 0, 11, 9, 30])


@pytest.mark.parametrize("rows", [(0, 2), (2, 0), (0,)], ids=str)
def test_a_cache_without_rows(rows):
    caches = [filled_cache(9, 4, KV_HEADS, SIZE, rows=n) for n in rows]
    check(new_tokens(sum(rows), 1, HEADS, KV_HEADS, SIZE), caches, 4)


@pytest.mark.parametrize("size", [SIZE, 300])
def test_a_batch_without_rows(size):
    out, caches = attend(*new_tokens(0, 1, HEADS, KV_HEADS, size), [], [])
    assert out.shape == (0, 1, HEADS * size)
    assert caches == []


@pytest.mark.parametrize("size", [SIZE, 300])
def test_no_new_tokens_leave_the_caches_as_they_are(size):
    caches = [filled_cache(9, 4, KV_HEADS, size), None, filled_cache(6, 6, KV_HEADS, size, seed=5)]
    out, grown = attend(*new_tokens(3, 0, HEADS, KV_HEADS, size), caches, 4)
    assert out.shape == (3, 0, HEADS * size)
    for pair, cache in zip(grown, (caches[0], caches[2]), strict=True):
        assert mx.array_equal(pair[0], cache[0])
        assert mx.array_equal(pair[1], cache[1])


@pytest.mark.parametrize("offset", [0, 4990, [7, 4000]], ids=str)
def test_positions_need_not_be_lengths(offset):
    check(*case([9, 30], 5), offset)


@pytest.mark.parametrize("scale", [0.0, 1.0, -0.3, None])
def test_scale(scale):
    check(*case([9, 30], 2), 9, scale=scale)


@each_dtype
def test_a_head_without_a_kernel(dtype):
    check(*case([21, None, 0], 3, size=300, dtype=dtype), 21)


@each_dtype
@pytest.mark.parametrize("traditional", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, traditional, dtype):
    """Every input has the layout; the returned cache has equal contents and its own memory."""
    tokens, caches = case([21, 9], 3, dtype=dtype)
    table = table_of(SIZE)
    expected = flat(one_by_one(*tokens, caches, table, [21, 9], traditional=traditional))
    moved = [(layout(keys), layout(values), length) for keys, values, length in caches]
    got = cached_attention(
        *(layout(x) for x in tokens), moved, layout(table.cos), layout(table.sin), [21, 9],
        traditional=traditional,
    )  # fmt: skip
    for x, same in zip(flat(got), expected, strict=True):
        assert mx.array_equal(x, same)
    for before, cache in zip(moved, caches, strict=True):
        assert mx.array_equal(before[0], cache[0])
        assert mx.array_equal(before[1], cache[1])


def test_heads_that_are_slices_of_one_product():
    """As in layers: query, key and value are slices of one array."""
    together = normal(2, 3, HEADS + 2 * KV_HEADS, SIZE)
    tokens = mx.split(together, [HEADS, HEADS + KV_HEADS], axis=2)
    check(tokens, [filled_cache(20, 11, KV_HEADS, SIZE, rows=2)], 11)
    check([x[1:] for x in tokens], [filled_cache(20, 11, KV_HEADS, SIZE)], 11)


def test_a_cache_that_is_a_part_of_another_array():
    keys, values, length = filled_cache(40, 11, 3 * KV_HEADS, SIZE, rows=4)
    part = keys[1:3, KV_HEADS : 2 * KV_HEADS, 5:30], values[1:3, KV_HEADS : 2 * KV_HEADS, 5:30], length
    tokens = new_tokens(2, 3, HEADS, KV_HEADS, SIZE)
    check(tokens, [part], 11)


def test_one_array_as_keys_and_values_and_in_two_caches():
    keys = normal(1, KV_HEADS, 40, SIZE)
    check(new_tokens(2, 3, HEADS, KV_HEADS, SIZE), [(keys, keys, 30), (keys, keys, 7)], [30, 7])


def test_new_tokens_in_the_memory_of_the_cache():
    """One operation reads and writes this memory, which nothing else uses."""
    table = table_of(SIZE)
    stored = normal(1, KV_HEADS, 40, SIZE)

    def call(function, *places):
        memory = stored + 0
        mx.eval(memory)
        tokens = memory[:, :, 10:13].swapaxes(1, 2)
        return flat(function(tokens, tokens, tokens, [(memory, stored, 9)], *places, 9))

    for x, same in zip(call(cached_attention, table.cos, table.sin), call(one_by_one, table), strict=True):
        assert mx.array_equal(x, same)


def test_memory_after_the_tokens_does_not_matter():
    tokens, ((keys, values, length),) = case([21], 3)
    room = mx.full((1, KV_HEADS, 8, SIZE), mx.nan)
    out, ((grown, _),) = attend(
        *tokens,
        [(mx.concatenate([keys[:, :, :21], room], 2), mx.concatenate([values[:, :, :21], room], 2), length)],
        21,
    )
    assert mx.array_equal(out, attend(*tokens, [(keys, values, length)], 21)[0])
    assert mx.all(mx.isnan(grown[:, :, 24:]))
    assert not mx.any(mx.isnan(grown[:, :, :24]))
