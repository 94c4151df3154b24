"""Paged attention equals the oracle over the tokens in the pages, wherever the pages are in the pool."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import flash_attention, paged_attention
from tiny_llm.runtime.extension import load_extension

from ...support.attention.pages import attention_by_sequence, paged
from ...support.cases import normal, qkv
from ...support.covering import pairwise
from ...support.native import active_isa, last_run
from ...support.tolerance import FLOOR, assert_close

HALF_TYPES = pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=["f16", "bf16"])
CAUSAL = pytest.mark.parametrize("mask", [None, "causal"])


def check(inputs, context_lens, page_size, mask=None, scale=None):
    query, key, value = inputs
    out = paged_attention(query, *paged(key, value, context_lens, page_size), scale, mask)
    expected = attention_by_sequence(query, key, value, context_lens, scale, mask == "causal")
    assert (out.dtype, out.shape) == (query.dtype, query.shape)
    assert_close(out, expected, floor=FLOOR[query.dtype])
    return out


def flat(query, pages, causal):
    """The binding of the course: rows of all heads."""
    B, heads, L, D = query.shape
    rows = load_extension().paged_attention(
        query.reshape(B * heads, L, D), *pages[:4], D**-0.5, causal,
        num_kv_heads=pages.key_pages.shape[1], num_heads=heads,
    )  # fmt: skip
    return rows.reshape(query.shape)


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


ABSENT = [-1, -7, 2**31 - 1, -(2**31), None]  # None: the first id after the last page


@pairwise({"absent": ABSENT, "page_size": [7, 64], "mask": [None, "causal"]})
def test_the_binding_of_the_course_hides_the_tokens_of_an_absent_page(absent, page_size, mask):
    query, key, value = qkv(batch=(2,), L=9, S=200)
    pages = paged(key, value, [200, 150], page_size)
    pages.block_table[0, 1] = len(pages.key_pages) if absent is None else absent
    out = flat(query, pages, mask == "causal")
    seen = (mx.arange(200) < page_size) | (mx.arange(200) >= 2 * page_size)
    seen = mx.broadcast_to(seen, (9, 200))
    if mask == "causal":
        seen = seen & (mx.arange(200) <= mx.arange(9)[:, None] + 191)
    want = flash_attention(query[:1], key[:1], value[:1], mask=seen)
    assert_close(out[:1], np.array(want, dtype=np.float64), floor=FLOOR[mx.float32])
    whole = paged_attention(query, *paged(key, value, [200, 150], page_size), None, mask)
    assert mx.array_equal(out[1], whole[1])


def test_the_binding_of_the_course_gives_zeros_without_any_present_page():
    query, key, value = qkv(batch=(1,), L=9, S=131)
    pages = paged(key, value, [131], 16)
    absent = mx.full(pages.block_table.shape, -1, dtype=mx.int32)
    assert not mx.any(flat(query, pages._replace(block_table=absent), False))


def with_absent_page(absent, dtype=mx.int32):
    """A batch whose first row has 200 tokens in four pages, the second of which is absent."""
    query, key, value = qkv(batch=(2,), L=9, S=200)
    pages = paged(key, value, [200, 150], 64)
    absent = len(pages.key_pages) if absent is None else absent
    pages.block_table[0, 1] = absent
    table = pages.block_table.astype(dtype)
    mx.eval(table)
    return query, pages._replace(block_table=table), absent


@CAUSAL
@pytest.mark.parametrize("absent", ABSENT, ids=str)
def test_a_call_of_the_course_hides_the_tokens_of_an_absent_page(absent, mask):
    query, pages, _ = with_absent_page(absent)
    assert mx.array_equal(paged_attention(query, *pages, None, mask), flat(query, pages, mask == "causal"))
    wide = pages._replace(block_table=pages.block_table.astype(mx.int64))
    assert mx.array_equal(paged_attention(query, *wide, None, mask), flat(query, pages, mask == "causal"))


@pytest.mark.parametrize("late", [False, True], ids=["known", "computed"])
@pytest.mark.parametrize("dtype", [mx.int32, mx.int64], ids=str)
@pytest.mark.parametrize("absent", ABSENT, ids=str)
def test_a_batch_with_an_absent_page_is_refused_in_every_other_call(absent, dtype, late):
    """Hidden tokens would be an answer without a part of the context, and nothing would say so."""
    query, pages, absent = with_absent_page(absent, dtype)
    text = rf"^paged_attention: block_table: got {absent} for page 1 of sequence 0, expected 0 to"
    for option in ({"causal": True}, {"window": 200}, {"softcap": 9.0}, {"sinks": mx.zeros((4,))},
                   {"q_lens": [9, 9]}, {"return_lse": True}):  # fmt: skip
        given = pages._replace(block_table=pages.block_table * 1) if late else pages
        with pytest.raises(RuntimeError if late else ValueError, match=text):
            mx.eval(paged_attention(query, *given, **option))


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
    far = wide + 2**32
    mx.eval(far)
    assert not mx.any(paged_attention(query, *pages._replace(block_table=far)))
    with pytest.raises(ValueError, match=rf"block_table: got {far[0, 0].item()} for page 0"):
        paged_attention(query, *pages._replace(block_table=far), causal=True)


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
