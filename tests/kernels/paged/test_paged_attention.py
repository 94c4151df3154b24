"""Paged attention equals the oracle over the tokens in the pages, wherever the pages are in the pool."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import flash_attention, paged_attention
from tiny_llm.ops.paged import gathered_attention

from ...support.attention.pages import attention_by_sequence, paged
from ...support.cases import normal, qkv
from ...support.covering import pairwise
from ...support.native import active_isa, last_run
from ...support.tolerance import FLOOR, assert_close, to_float64

HALF_TYPES = pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=["f16", "bf16"])
CAUSAL = pytest.mark.parametrize("mask", [None, "causal"])


def check(inputs, context_lens, page_size, mask=None, scale=None):
    query, key, value = inputs
    out = paged_attention(query, *paged(key, value, context_lens, page_size), scale, mask)
    expected = attention_by_sequence(query, key, value, context_lens, scale, mask == "causal")
    assert (out.dtype, out.shape) == (query.dtype, query.shape)
    assert_close(out, expected, floor=FLOOR[query.dtype])
    return out


@pairwise({"L": [1, 33, 70], "page_size": [1, 7, 16, 64, 100, 128, 256], "mask": [None, "causal"]})
def test_page_sizes(L, page_size, mask):
    """A key tile is a part of a page, a page, several pages, or crosses page borders."""
    check(qkv(batch=(3,), L=L, S=300), [300, 131, 5], page_size, mask)
    assert last_run()["isa"] == active_isa()


@CAUSAL
@pytest.mark.parametrize("context", [0, 1, 6, 7, 8, 13, 14, 15, 63, 64, 65, 131])
def test_lengths_around_the_edges_of_pages(context, mask):
    check(qkv(batch=(2,), L=5, S=131), [context, 131 - context], 7, mask)


@pairwise({"E": [1, 3, 40, 64, 80, 128, 256], "page_size": [7, 128], "mask": [None, "causal"]})
def test_head_sizes(E, page_size, mask):
    check(qkv(batch=(2,), L=9, S=150, E=E), [150, 70], page_size, mask)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (2, 2), (6, 2), (8, 1), (14, 2)])
@pytest.mark.parametrize("L", [1, 33])
def test_grouped_heads(L, heads, kv_heads):
    check(qkv(batch=(2,), heads=heads, kv_heads=kv_heads, L=L, S=131), [131, 40], 16, "causal")


@pytest.mark.parametrize("page_size", [7, 128])
@pytest.mark.parametrize("L", [1, 4])
def test_long_contexts_are_split_and_merged(L, page_size):
    check(qkv(batch=(2,), L=L, S=5000), [5000, 1500], page_size, "causal")
    assert last_run()["path"] == "cpu.split"


@CAUSAL
@pytest.mark.parametrize("page_size", [7, 64])
def test_the_gathered_form_gives_the_same(page_size, mask):
    """The form for devices without a kernel, with an idle row and an absent page."""
    query, key, value = qkv(batch=(3,), L=9, S=150)
    pages = paged(key, value, [150, 0, 70], page_size)
    pages.block_table[0, 1] = -1
    gathered = gathered_attention(query, *pages[:4], 0.2, mask == "causal")
    kernel = paged_attention(query, *pages, 0.2, mask)
    assert_close(kernel, np.array(gathered, dtype=np.float64), floor=FLOOR[mx.float32])


def test_scale():
    check(qkv(L=9, S=65), [65, 33], 7, "causal", scale=0.3)


@CAUSAL
def test_an_empty_context_gives_zeros(mask):
    out = check(qkv(batch=(3,), L=5, S=65), [0, 65, -3], 16, mask)
    assert not mx.any(out[0])
    assert not mx.any(out[2])


def test_causal_queries_before_the_first_token_give_zeros():
    out = check(qkv(batch=(1,), L=70, S=40), [40], 16, "causal")
    assert not mx.any(out[:, :, :30])


@pytest.mark.parametrize("shape", [(0, 4, 5, 32), (2, 4, 0, 32)], ids=str)
def test_no_queries(shape):
    _, key, value = qkv(batch=(shape[0],), L=5, S=65)
    assert paged_attention(mx.zeros(shape), *paged(key, value, [65] * shape[0], 16)).shape == shape


def test_no_pages_at_all():
    query, pages = normal(2, 4, 5, 32), mx.zeros((0, 2, 16, 32))
    for width in (0, 3):
        table = mx.full((2, width), -1, dtype=mx.int32)
        assert not mx.any(paged_attention(query, pages, pages, table, mx.zeros((2,), dtype=mx.int32), 16))


@pytest.mark.parametrize("page_size", [7, 64])
def test_the_place_of_the_pages_does_not_change_a_bit(page_size):
    query, key, value = qkv(batch=(2,), L=9, S=150)
    results = [
        paged_attention(query, *paged(key, value, [150, 70], page_size, seed=seed), None, "causal")
        for seed in range(3)
    ]
    assert all(mx.array_equal(result, results[0]) for result in results)


def test_bitwise_equal_to_flash_attention_on_dense_keys():
    for L, page_size in ((1, 7), (33, 128), (70, 16)):
        query, key, value = qkv(batch=(2,), L=L, S=300)
        dense = flash_attention(query, key, value, mask="causal")
        assert mx.array_equal(
            paged_attention(query, *paged(key, value, [300, 300], page_size), None, "causal"), dense
        )


def test_sequences_may_share_pages():
    query, key, value = qkv(batch=(1,), L=9, S=131)
    pages = paged(key, value, [131], 16)
    both = [mx.concatenate([x, x]) for x in (query, pages.block_table, pages.context_lens)]
    out = paged_attention(both[0], *pages[:2], *both[1:], 16)
    alone = paged_attention(query, *pages)
    assert mx.array_equal(out, mx.concatenate([alone, alone]))


@pairwise({"absent": [-1, -7, 2**31 - 1, -(2**31), None], "page_size": [7, 64], "mask": [None, "causal"]})
def test_tokens_of_an_absent_page_are_hidden(absent, page_size, mask):
    """An id of None stands for the first id after the last page."""
    query, key, value = qkv(batch=(2,), L=9, S=200)
    pages = paged(key, value, [200, 150], page_size)
    pages.block_table[0, 1] = len(pages.key_pages) if absent is None else absent
    out = paged_attention(query, *pages, None, mask)
    seen = (mx.arange(200) < page_size) | (mx.arange(200) >= 2 * page_size)
    seen = mx.broadcast_to(seen, (9, 200))
    if mask == "causal":
        seen = seen & (mx.arange(200) <= mx.arange(9)[:, None] + 191)
    want = flash_attention(query[:1], key[:1], value[:1], mask=seen)
    assert_close(out[:1], np.array(want, dtype=np.float64), floor=FLOOR[mx.float32])
    assert mx.array_equal(
        out[1], paged_attention(query, *paged(key, value, [200, 150], page_size), None, mask)[1]
    )


def test_a_sequence_without_any_present_page_gives_zeros():
    query, key, value = qkv(batch=(1,), L=9, S=131)
    pages = paged(key, value, [131], 16)
    absent = mx.full(pages.block_table.shape, -1, dtype=mx.int32)
    assert not mx.any(paged_attention(query, *pages._replace(block_table=absent)))


@pytest.mark.parametrize("L", [1, 33])
def test_layouts(L):
    """Transposed queries, a slice of a larger pool of token-major pages, tables with gaps."""
    query, key, value = qkv(batch=(2,), L=L, S=131)
    pages = paged(key, value, [131, 70], 16)
    plain = paged_attention(query, *pages, None, "causal")
    moved = pages._replace(
        key_pages=mx.contiguous(pages.key_pages.swapaxes(1, 2)).swapaxes(1, 2),
        value_pages=mx.contiguous(mx.repeat(pages.value_pages, 2, axis=3))[..., ::2],
        block_table=mx.contiguous(pages.block_table.T).T,
        context_lens=mx.repeat(pages.context_lens, 2)[::2],
    )
    turned = mx.contiguous(query.swapaxes(1, 2)).swapaxes(1, 2)
    assert mx.array_equal(paged_attention(turned, *moved, None, "causal"), plain)


def test_wider_integers_do_not_wrap():
    query, key, value = qkv(batch=(1,), L=9, S=131)
    pages = paged(key, value, [131], 16)
    wide = pages.block_table.astype(mx.int64)
    same = pages._replace(block_table=wide, context_lens=pages.context_lens.astype(mx.uint8))
    assert mx.array_equal(paged_attention(query, *same), paged_attention(query, *pages))
    far = pages._replace(block_table=wide + 2**32)
    assert not mx.any(paged_attention(query, *far))


@CAUSAL
@pytest.mark.parametrize("page_size", [7, 128])
@pytest.mark.parametrize("L", [1, 9, 70])
@HALF_TYPES
def test_the_result_has_the_half_type_of_the_query(dtype, L, page_size, mask):
    """Sums are float32; the result is bitwise equal to attention on dense keys."""
    query, key, value = qkv(batch=(2,), L=L, S=300, E=64, dtype=dtype)
    check((query, key, value), [300, 131], page_size, mask)
    full = paged_attention(query, *paged(key, value, [300, 300], page_size), None, mask)
    assert mx.array_equal(full, flash_attention(query, key, value, mask=mask))


@HALF_TYPES
def test_queries_and_pages_of_different_types_are_computed_in_float32(dtype):
    query, key, value = qkv(L=9, S=65)
    for wide in ((True, False, False), (False, True, False), (False, True, True)):
        mixed = [x if stays else x.astype(dtype) for stays, x in zip(wide, (query, key, value), strict=True)]
        same = [x.astype(mx.float32) for x in mixed]
        pages = [paged(key, value, [65, 33], 16) for _, key, value in (mixed, same)]
        out = paged_attention(mixed[0], *pages[0])
        assert out.dtype == mixed[0].dtype
        assert mx.array_equal(out, paged_attention(same[0], *pages[1]).astype(out.dtype))


@HALF_TYPES
def test_the_gathered_form_accepts_half_types(dtype):
    query, key, value = qkv(batch=(2,), L=9, S=150, dtype=dtype)
    pages = paged(key, value, [150, 70], 16)
    gathered = gathered_attention(query, *pages[:4], 0.2, True)
    assert gathered.dtype == dtype
    assert_close(paged_attention(query, *pages, 0.2, "causal"), to_float64(gathered), floor=FLOOR[dtype])


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
def test_the_context_is_not_gathered_in_memory(dtype):
    query, key, value = qkv(batch=(4,), heads=2, kv_heads=2, L=1, S=4096, E=64, dtype=dtype)
    pages = paged(key, value, [4096] * 4, 7)
    mx.eval(query, *pages[:4])
    paged_attention(query, *pages)  # starts the thread pool and allocates its scratch
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    mx.eval(paged_attention(query, *pages))
    assert mx.get_peak_memory() - before < key.nbytes / 8


def test_compile_merges_only_equal_calls():
    query, key, value = qkv(L=9, S=64)
    pages = paged(key, value, [64, 33], 16)
    variants = [(None, None), (0.3, None), (None, "causal")]
    together = mx.compile(lambda q: [paged_attention(q, *pages, *options) for options in variants])(query)
    for options, out in zip(variants, together, strict=True):
        assert mx.array_equal(out, paged_attention(query, *pages, *options))
