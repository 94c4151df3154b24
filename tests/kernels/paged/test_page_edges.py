"""Contexts around the edges of pages of every size, in both layouts and under every window: dense keys."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import (
    explain,
    flash_attention_varlen,
    paged_attention,
    paged_attention_decode,
    store_kvcache,
)

from ...support.attention.oracle import visible_keys
from ...support.attention.packed import cumulative
from ...support.attention.pages import Pages, paged
from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.native import last_run
from ...support.refusal import refused
from ...support.tolerance import FLOOR, assert_close, same_bits, to_float64

LAYOUTS = pytest.mark.parametrize("layout", ["PHSE", "PSHE"])
PAGE_SIZES = pytest.mark.parametrize("page_size", [1, 16, 64, 256])


def in_layout(pages: Pages, layout: str) -> Pages:
    """The pages that `paged` made, as [P, H, page, E] or [P, page, H, E]."""
    if layout == "PHSE":
        return pages
    key_pages, value_pages = (mx.contiguous(x.swapaxes(1, 2)) for x in pages[:2])
    return pages._replace(key_pages=key_pages, value_pages=value_pages)


@PAGE_SIZES
@LAYOUTS
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_contexts_around_the_edges_of_pages(page_size, layout, rows, dtype):
    """All of them in one call, with NaN in every free slot; the same bits as over dense keys."""
    edges = {pages * page_size + step for pages in (1, 2) for step in (-1, 0, 1)}
    contexts = sorted({0, 1, 5, 17, 70, 2 * page_size + 9} | edges)
    key, value = normal(2, len(contexts), 2, max(contexts), 32, dtype=dtype)
    query = normal(rows * len(contexts), 4, 32, dtype=dtype, seed=1)
    begins = [rows * b for b in range(len(contexts) + 1)]
    pages = in_layout(paged(key, value, contexts, page_size), layout)
    got = paged_attention(query, *pages, causal=True, cu_seqlens_q=begins, layout=layout, return_lse=True)
    dense = (
        mx.concatenate([x[b, :, :n].swapaxes(0, 1) for b, n in enumerate(contexts)]) for x in (key, value)
    )
    want = flash_attention_varlen(query, *dense, begins, cumulative(contexts), causal=True, return_lse=True)
    assert same_bits(want, got)
    assert not got[0][:rows].any()
    assert (got[1][:rows] == -mx.inf).all()


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("width", [1, 4, 7, 8, 63, 64, 65, 300])
@pytest.mark.parametrize("rows", [1, 70])
def test_a_window_over_pages_sees_exactly_that_many_keys(width, causal, rows):
    """Equal scores: exp(LSE) counts the keys that a row sees, and the output is their mean position."""
    contexts = [4 * width + 40, max(1, width - 1), 5]
    longest = max(contexts)
    key = mx.broadcast_to(mx.zeros((1,)), (3, 1, longest, 8))
    value = mx.broadcast_to(mx.arange(longest, dtype=mx.float32)[:, None], (3, 1, longest, 8))
    begins = [0, rows, 2 * rows, 3 * rows]
    out, lse = paged_attention(
        mx.zeros((3 * rows, 2, 8)), *paged(key, value, contexts, 16),
        causal=causal, window=width, cu_seqlens_q=begins, return_lse=True,
    )  # fmt: skip
    for b, n in enumerate(contexts):
        seen = visible_keys(rows, n, causal=causal, window=width)
        part = slice(begins[b], begins[b + 1])
        for head in range(2):
            np.testing.assert_allclose(np.exp(np.array(lse[part, head])), seen.sum(axis=1), rtol=1e-5)
            total = np.array(out[part, head, 0]) * seen.sum(axis=1)
            np.testing.assert_allclose(total, seen @ np.arange(n), rtol=1e-5, atol=1e-4)


@PAGE_SIZES
def test_a_wider_table_changes_neither_the_kernel_nor_a_bit(page_size):
    """Tables grow with the longest request; other servers compile their kernel again for each width."""
    contexts = [300, 17]
    key, value = normal(2, 2, 2, 300, 32)
    query = normal(2, 4, 32, seed=1)
    pages = paged(key, value, contexts, page_size)
    narrow = paged_attention(query, *pages, causal=True, cu_seqlens_q=[0, 1, 2])
    mx.eval(narrow)
    run = last_run()
    wide = pages._replace(block_table=mx.pad(pages.block_table, [(0, 0), (0, 1000)], constant_values=-1))
    again = paged_attention(query, *wide, causal=True, cu_seqlens_q=[0, 1, 2])
    mx.eval(again)
    assert mx.array_equal(narrow, again)
    assert last_run() == run
    assert explain(paged_attention, query, *wide, causal=True, cu_seqlens_q=[0, 1, 2]).path == run["path"]


def test_the_last_page_of_a_pool_is_valid_and_the_next_is_not():
    pool = normal(2, 6, 2, 16, 8)
    query = normal(1, 4, 8, seed=1)

    def attend(page):
        table, context = mx.array([[page]], dtype=mx.int64), mx.array([16], dtype=mx.int64)
        return paged_attention(query, *pool, table, context, cu_seqlens_q=[0, 1])

    last = paged_attention(query, *pool[:, 5:], mx.array([[0]]), mx.array([16]), cu_seqlens_q=[0, 1])
    assert mx.array_equal(attend(5), last)
    for page in (6, -1, 2**32, 2**32 + 5, -(2**31), 2**63 - 1):
        with pytest.raises(ValueError, match=rf"^paged_attention: block_table: got {page} for page 0"):
            attend(page)


@pytest.mark.parametrize("context", [17, -1, 2**31, 2**32 + 16, -(2**32), 2**63 - 1])
def test_a_context_in_64_bits_does_not_wrap(context):
    pool, long = normal(2, 6, 2, 16, 8), mx.array([context], dtype=mx.int64)
    with pytest.raises(ValueError, match=rf"^paged_attention: context_lens: got {context} for sequence 0"):
        paged_attention(normal(1, 4, 8), *pool, mx.array([[3]]), long, cu_seqlens_q=[0, 1])


def test_a_table_without_columns_holds_no_context():
    pool = normal(2, 6, 2, 16, 8)
    nothing = mx.zeros((1, 0), dtype=mx.int32)
    out = paged_attention(normal(1, 4, 8), *pool, nothing, mx.array([0]), cu_seqlens_q=[0, 1])
    assert not out.any()
    with pytest.raises(ValueError, match=r"^paged_attention: context_lens: got 1"):
        paged_attention(normal(1, 4, 8), *pool, nothing, mx.array([1]), cu_seqlens_q=[0, 1])


@pytest.mark.parametrize("wrong", [1, 8, 17, 256])
def test_a_page_size_that_disagrees_with_the_pool_is_refused(wrong):
    """Elsewhere the argument wins, and the kernel reads pages of other sequences."""
    pool, tokens = normal(2, 6, 16, 2, 8), normal(2, 1, 2, 8)
    table, context = mx.array([[3]]), mx.array([16])
    with refused("key_pages", function="paged_attention"):
        paged_attention(normal(1, 4, 8), *pool, table, context, wrong, layout="PSHE", cu_seqlens_q=[0, 1])
    with refused("key_pages", function="paged_attention"):
        paged_attention(normal(1, 4, 1, 8), *pool.swapaxes(2, 3), table, context, wrong)
    with refused("k_cache", function="paged_attention_decode"):
        paged_attention_decode(normal(1, 4, 8), *pool, table, context, 1.0, 4, 2, 8, wrong)
    with refused("block_size", function="store_kvcache"):
        store_kvcache(*tokens, *pool, mx.array([3]), wrong)


@pytest.mark.parametrize("page_size", [7, 16])
def test_decode_adds_products_of_half_types_in_float32(page_size):
    """A score is 2048 + 126 - 2048: in float16 the numbers between are lost."""
    terms = mx.ones(128)
    terms[0], terms[127] = 2048, -2048
    key = mx.broadcast_to(mx.where(mx.arange(40)[:, None] == 3, terms, 0), (1, 1, 40, 128)).astype(mx.float16)
    value = normal(1, 1, 40, 128, dtype=mx.float16)
    query = mx.ones((1, 2, 128), dtype=mx.float16)
    pages = paged(key, value, [40], page_size)
    out, lse = paged_attention(query, *pages, 0.1, cu_seqlens_q=[0, 1], return_lse=True)
    assert_close(lse, np.full((1, 2), 12.6 + np.log1p(39 * np.exp(-12.6))), floor=1e-5)
    assert_close(out, to_float64(mx.repeat(value[:, :, 3], 2, axis=1)), floor=FLOOR[mx.float16])


def test_every_head_size_has_the_bits_of_dense_keys():
    """Also without a scale: the default is the same number in each function."""
    for E in range(1, 257):
        key, value = normal(2, 1, 1, 33, E)
        query = normal(5, 1, E, seed=1)
        got = paged_attention(query, *paged(key, value, [33], 7), cu_seqlens_q=[0, 5], return_lse=True)
        dense = (x[0].swapaxes(0, 1) for x in (key, value))
        assert same_bits(flash_attention_varlen(query, *dense, [0, 5], [0, 33], return_lse=True), got), E
