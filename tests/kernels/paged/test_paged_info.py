"""PagedInfo: checked when it is made, the same bits as the arrays, and the slots of the new tokens."""

from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import PagedInfo
from tiny_llm.attention import explain, paged_attention, store_kvcache
from tiny_llm.runtime.extension import load_extension

from ...support.attention.packed import cumulative
from ...support.attention.pages import paged
from ...support.cases import normal
from ...support.refusal import case_id, refused
from ...support.tolerance import same_bits

TABLE, CONTEXTS, ROWS = [[4, 1], [0]], [20, 7], [0, 5, 6]
POOL = normal(2, 6, 2, 16, 32)


def info(**wrong):
    fitting = {"block_table": TABLE, "context_lens": CONTEXTS, "page_size": 16, "cu_seqlens_q": ROWS}
    return PagedInfo(**(fitting | wrong))


def attend(step, query=None, **options):
    query = normal(6, 4, 32, seed=2) if query is None else query
    return paged_attention(query, *POOL, step, causal=True, return_lse=True, **options)


@pytest.mark.parametrize(
    "convert",
    [lambda x: x, tuple, np.array, mx.array, lambda x: np.array(x, np.int64), lambda x: mx.array(x) + 0],
    ids=["list", "tuple", "numpy", "mlx", "int64", "computed"],
)
def test_the_bits_are_those_of_the_arrays(convert):
    padded = [[4, 1], [0, -1]]
    step = info(block_table=convert(padded), context_lens=convert(CONTEXTS), cu_seqlens_q=convert(ROWS))
    query = normal(6, 4, 32, seed=2)
    arrays = mx.array(padded), mx.array(CONTEXTS)
    want = paged_attention(query, *POOL, *arrays, cu_seqlens_q=ROWS, causal=True, return_lse=True)
    assert same_bits(want, attend(step))


def test_gradients_and_maps_have_the_bits_of_the_arrays():
    arrays = mx.array([[4, 1], [0, -1]]), mx.array(CONTEXTS)
    queries = normal(2, 6, 4, 32, seed=2)

    def loss(*x):
        return paged_attention(*x, causal=True, cu_seqlens_q=ROWS if len(x) > 4 else None).square().sum()

    gradient = mx.grad(loss, argnums=(0, 1, 2))
    assert same_bits(gradient(queries[0], *POOL, *arrays), gradient(queries[0], *POOL, info()))
    mapped = mx.vmap(lambda query: attend(info(), query))(queries)
    for i in range(2):
        assert same_bits(attend(info(), queries[i]), [x[i] for x in mapped])


def test_fields():
    step = info(num_pages=6, check=True)
    assert step.block_table.tolist() == [[4, 1], [0, -1]]
    assert step.context_lens.tolist() == CONTEXTS
    assert step.cu_seqlens_q.tolist() == ROWS
    assert {x.dtype for x in (step.block_table, step.context_lens, step.cu_seqlens_q)} == {mx.int32}
    assert (step.slot_mapping.dtype, step.page_size) == (mx.int64, 16)
    assert (step.num_sequences, step.num_tokens) == (2, 6)
    empty = PagedInfo([], [], 16)
    assert (empty.block_table.shape, empty.slot_mapping.shape) == ((0, 0), (0,))
    assert not attend(empty, mx.zeros((0, 4, 32)))[0].size


@pytest.mark.parametrize("page_size", [1, 7, 16])
def test_each_new_token_has_the_slot_of_its_position(page_size):
    """Prompts, a token after a prefix, a context that fills its pages, and idle sequences."""
    contexts, new = [40, 17, 0, page_size, 3, 0], [40, 1, 1, 1, 5, 0]
    table = paged(*normal(2, 6, 1, 40, 8), contexts, page_size).block_table
    step = PagedInfo(table, contexts, page_size, cumulative(new))
    want = []
    for row, context, count in zip(table.tolist(), contexts, new, strict=True):
        positions = range(context - count, context)
        want += [-1 if p < 0 else row[p // page_size] * page_size + p % page_size for p in positions]
    assert step.slot_mapping.tolist() == want


def test_without_rows_each_sequence_has_one_new_token():
    step = PagedInfo(TABLE, CONTEXTS, 16)
    assert step.cu_seqlens_q.tolist() == [0, 1, 2]
    assert step.slot_mapping.tolist() == [1 * 16 + 3, 6]


def test_attention_reads_what_was_stored_at_the_slots():
    """Two layers of a step, in pages that held NaN, against attention in pages that were made whole."""
    key, value = normal(2, 1, 2, 20, 32)
    whole = paged(key, value, [20], 16)
    pages = [mx.full(x.shape, mx.nan).swapaxes(1, 2) for x in whole[:2]]
    query = normal(20, 4, 32, seed=2)
    step = PagedInfo(whole.block_table, [20], 16, [0, 20], num_pages=len(whole.key_pages), check=True)
    for _ in range(2):
        rows = [x[0].swapaxes(0, 1) for x in (key, value)]
        pages = store_kvcache(*rows, *(mx.contiguous(x) for x in pages), step.slot_mapping, layout="PSHE")
        query = paged_attention(query, *pages, step, layout="PSHE", causal=True)
    want = normal(20, 4, 32, seed=2)
    for _ in range(2):
        want = paged_attention(want, *whole, cu_seqlens_q=[0, 20], causal=True)
    assert mx.array_equal(query, want)


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("block_table", {"block_table": [[4, 6], [0]], "num_pages": 6}),
        ("block_table", {"block_table": [[4, -1], [0]]}),
        ("block_table", {"block_table": [[4, -2], [0]]}),
        ("block_table", {"block_table": [[-1, -1], [0]]}),
        ("block_table", {"block_table": [[4, 1]]}),
        (r"block_table\[0\]", {"block_table": [[4, 2**32], [0]]}),
        (r"block_table\[1\]", {"block_table": [[4, 1], [0.5]]}),
        (r"block_table\[0\]", {"block_table": mx.array([4, 1])}),
        ("block_table", {"block_table": None}),
        ("context_lens", {"context_lens": [33, 7]}),
        ("context_lens", {"context_lens": [20, -1]}),
        ("context_lens", {"context_lens": [20, 2**40]}),
        ("context_lens", {"context_lens": [20.0, 7.0]}),
        ("context_lens", {"context_lens": [True, 7]}),
        ("context_lens", {"context_lens": "20"}),
        ("cu_seqlens_q", {"cu_seqlens_q": [0, 6]}),
        ("cu_seqlens_q", {"cu_seqlens_q": [1, 5, 6]}),
        ("cu_seqlens_q", {"cu_seqlens_q": [0, 7, 6]}),
        ("cu_seqlens_q", {"cu_seqlens_q": []}),
        ("page_size", {"page_size": 0}),
        ("page_size", {"page_size": None}),
        ("num_pages", {"check": True}),
        ("num_pages", {"num_pages": -1}),
    ],
    ids=case_id,
)
def test_wrong_numbers_are_refused_when_it_is_made(argument, wrong):
    with refused(argument, (ValueError, TypeError), "PagedInfo"):
        info(**wrong)


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("block_table", {"block_table": mx.array([[4, 6], [0, -1]]), "context_lens": mx.array(CONTEXTS)}),
        ("block_table", {"block_table": info(block_table=[[4, 6], [0]])}),
        ("context_lens", {"context_lens": mx.array(CONTEXTS)}),
        ("cu_seqlens_q", {"cu_seqlens_q": ROWS}),
        ("page_size", {"page_size": 8}),
        ("query", {"query": mx.zeros((5, 4, 32))}),
        ("query", {"query": mx.zeros((2, 4, 1, 32))}),
        ("key_pages", {"layout": "PSHE"}),
        ("key_pages", {"key_pages": mx.zeros((6, 2, 32, 32))}),
        ("key_pages", {"key_pages": mx.zeros((6, 2, 16))}),
        ("value_pages", {"value_pages": mx.zeros((5, 2, 16, 32))}),
    ],
    ids=case_id,
)
def test_a_call_that_does_not_fit_is_refused(argument, wrong):
    fitting = {"query": mx.zeros((6, 4, 32)), "key_pages": POOL[0], "value_pages": POOL[1],
               "block_table": info(), "page_size": 16}  # fmt: skip
    assert paged_attention(**fitting).shape == (6, 4, 32)
    if "context_lens" in wrong and "block_table" in wrong:
        wrong = wrong | {"cu_seqlens_q": ROWS}
    with refused(argument, function="paged_attention"):
        paged_attention(**(fitting | wrong))


def test_arrays_need_contexts():
    with refused("context_lens", TypeError, "paged_attention"):
        paged_attention(mx.zeros((6, 4, 32)), *POOL, mx.array([[0]]))


def test_pages_before_a_window_may_be_gone():
    step = info(block_table=[[-1, 1], [0]], context_lens=[20, 7], cu_seqlens_q=[0, 1, 2])
    whole = PagedInfo(TABLE, CONTEXTS, 16)
    query = normal(2, 4, 32, seed=2)
    assert same_bits(attend(whole, query, window=4), attend(step, query, window=4))
    with refused("block_table", function="paged_attention"):
        attend(step, query, window=5)


def test_it_does_not_change():
    step = info()
    before = attend(step)
    with pytest.raises(AttributeError):
        step.page_size = 8
    with pytest.raises(AttributeError):
        step.extra = 1
    for field in (step.block_table, step.context_lens, step.cu_seqlens_q, step.slot_mapping):
        field[0] = 2
    assert step.block_table.tolist() == [[4, 1], [0, -1]]
    assert same_bits(before, attend(step))


def test_explain():
    query = normal(6, 4, 32, seed=2)
    arrays = mx.array([[4, 1], [0, -1]]), mx.array(CONTEXTS)
    plan = explain(paged_attention, query, *POOL, info(), causal=True)
    assert plan == explain(paged_attention, query, *POOL, *arrays, causal=True, cu_seqlens_q=ROWS)
    assert plan.fused


def test_kernels_never_follow_ids_that_the_caller_claims_to_have_checked():
    """Such tokens are hidden: the first 16 of 20."""
    query = normal(1, 4, 32, seed=2)
    attend = partial(load_extension().attention_in_pages, cu_seqlens_q=[0, 1], ids_checked=True)
    last = partial(paged_attention, window=(3, 0))

    def output_and_gradients(function, table):
        call = lambda *x: [function(*x, table, mx.array([20]), return_lse=True)[0]]  # noqa: E731
        outputs, gradients = mx.vjp(call, [query, *POOL], [query])
        return outputs + gradients

    want = output_and_gradients(last, mx.array([[-1, 1]]))
    for wrong in (6, -1, 2**31 - 1, -(2**31)):
        got = output_and_gradients(attend, mx.array([[wrong, 1]], dtype=mx.int32))
        for x, y in zip(got, want, strict=True):
            assert mx.allclose(x, y, atol=1e-6)


def test_a_compiled_call_refuses_a_smaller_pool_than_the_ids_were_checked_for():
    step = info()
    call = mx.compile(lambda q, k, v: paged_attention(q, k, v, step, causal=True), shapeless=True)
    query = normal(6, 4, 32, seed=2)
    keys, values = POOL
    assert mx.array_equal(call(query, keys, values), attend(step)[0])
    with pytest.raises(RuntimeError, match="key_pages: got 4 pages, expected at least the 6"):
        mx.eval(call(query, keys[:4], values[:4]))
