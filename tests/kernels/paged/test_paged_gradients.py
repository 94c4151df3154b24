"""Gradients through pages: exact, summed over the sequences that share a page, 0 in all other slots."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import flash_attention_varlen, paged_attention
from tiny_llm.runtime.extension import load_extension

from ...support.attention.page_gradients import page_gradients
from ...support.attention.paged_calls import (
    CONTEXTS,
    ROWS,
    cotangents,
    gradients,
    packed_gradients,
    pools,
    slots_outside,
)
from ...support.attention.pages import Pages, paged
from ...support.cases import DTYPE_IDS, DTYPES, normal, qkv
from ...support.covering import pairwise
from ...support.native import available_isas, last_run
from ...support.tolerance import GRADIENT_FLOOR, assert_close, same_bits, to_float64

native = load_extension()
pytestmark = pytest.mark.usefixtures("on_the_cpu")

OPTIONS = [{}, {"causal": False}, {"window": 9}, {"window": (3, 5), "causal": False}, {"softcap": 2.0},
           {"window": 40, "softcap": 3.0, "scale": 0.4}]  # fmt: skip


def check(got, query, pages, rows, contexts, sinks=None, **options):
    """Against float64, through gathered keys."""
    exact = page_gradients(
        to_float64(query), *map(to_float64, pages[:2]), np.array(pages.block_table), contexts, rows,
        *map(to_float64, cotangents(query)), sinks=None if sinks is None else to_float64(sinks), **options,
    )  # fmt: skip
    inputs = [query, *pages[:2]] + ([] if sinks is None else [sinks])
    for name, grad, want, x in zip(("dQ", "dK", "dV", "dsinks"), got, exact, inputs, strict=False):
        assert (grad.shape, grad.dtype) == (x.shape, x.dtype), name
        assert_close(grad, want, floor=GRADIENT_FLOOR[query.dtype] * np.abs(want).max(initial=0), what=name)


@pairwise({"page_size": [1, 7, 16, 64, 256], "options": OPTIONS, "dtype": [*DTYPES],
           "shared": [False, True], "with_sinks": [False, True]})  # fmt: skip
def test_exact_with_every_option(page_size, options, dtype, shared, with_sinks):
    pages = pools(page_size, shared=shared, dtype=dtype)
    query, sinks = normal(78, 4, 32, dtype=dtype), normal(4, seed=5) if with_sinks else None
    options = {"causal": True} | options
    got = packed_gradients(query, pages, sinks, **options)
    mx.eval(got)
    assert last_run()["path"] == "cpu.backward"
    check(got, query, pages, ROWS, CONTEXTS, sinks, **options)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_instruction_sets(isa, dtype):
    pages, query = pools(shared=True, dtype=dtype, E=64), normal(78, 4, 64, dtype=dtype)
    options = {"causal": True, "window": 40}
    got = gradients(query, pages, None, native.attention_in_pages, cu_seqlens_q=ROWS, isa=isa, **options)
    mx.eval(got)
    assert last_run()["isa"] == isa
    check(got, query, pages, ROWS, CONTEXTS, **options)


@pytest.mark.parametrize("layout", ["PHSE", "PSHE"])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_the_bits_of_packed_keys_in_slots_of_their_own(dtype, layout):
    """Free slots, which hold NaN, have the gradient 0."""
    pages, query = pools(7, dtype=dtype), normal(78, 4, 32, dtype=dtype)
    table, size = np.array(pages.block_table), pages.page_size
    at = np.concatenate(
        [table[b, np.arange(n) // size] * size + np.arange(n) % size for b, n in enumerate(CONTEXTS)]
    ).astype(np.int32)

    def rows_of_slots(pool):
        return pool.swapaxes(1, 2).reshape(-1, 2, 32)

    keys, values = (rows_of_slots(x)[mx.array(at)] for x in pages[:2])
    begins = [0, *np.cumsum(CONTEXTS).tolist()]

    def dense(q, k, v):
        return list(flash_attention_varlen(q, k, v, ROWS, begins, causal=True, window=50, return_lse=True))

    want = mx.vjp(dense, [query, keys, values], cotangents(query))[1]
    given = slots_outside(pages) if layout == "PSHE" else pages
    got = packed_gradients(query, given, window=50, layout=layout)
    assert same_bits(want[:1], got[:1])
    free = np.setdiff1d(np.arange(pages.key_pages.shape[0] * size), at).astype(np.int32)
    for pool, one in zip(got[1:], want[1:], strict=True):
        by_slot = rows_of_slots(pool if layout == "PHSE" else pool.swapaxes(1, 2))
        assert mx.array_equal(by_slot[mx.array(at)], one)
        assert not by_slot[mx.array(free)].any()


def test_sums_of_a_shared_page_are_rounded_once():
    """A thousand equal terms: sums in bfloat16 would stop growing at the 256th."""
    pages = Pages(*normal(2, 1, 2, 8, 16, dtype=mx.bfloat16), *mx.zeros((2, 1000), mx.int32), 8)
    one, many = (
        pages._replace(block_table=mx.zeros((n, 1), mx.int32), context_lens=mx.full(n, 8, mx.int32))
        for n in (1, 1000)
    )
    query = normal(1, 2, 16, dtype=mx.bfloat16)

    def loss(pages):
        query_of_each = mx.repeat(query, pages.context_lens.shape[0], axis=0)
        return lambda k, v: paged_attention(query_of_each, k, v, *pages[2:4]).astype(mx.float32).sum()

    for alone, together in zip(
        *(mx.grad(loss(x), argnums=(0, 1))(*pages[:2]) for x in (one, many)), strict=True
    ):
        want = 1000 * to_float64(alone)
        assert np.abs(to_float64(together) - want).max() <= 2**-7 * np.abs(want).max()


def test_the_same_bits_in_each_run_and_for_any_number_of_threads():
    pages, query = pools(shared=True), normal(78, 4, 32)
    first = packed_gradients(query, pages)
    assert all(same_bits(first, packed_gradients(query, pages)) for _ in range(20))
    for threads in (1, 3):
        options = {"causal": True, "cu_seqlens_q": ROWS, "threads": threads}
        assert same_bits(first, gradients(query, pages, None, native.attention_in_pages, **options))


@pytest.mark.parametrize("stale", ["absent", "foreign"])
def test_pages_before_a_window_have_no_gradient_and_may_hold_anything(stale):
    pages, query = pools(), normal(78, 4, 32)
    want = packed_gradients(query, pages, window=9)
    table = np.array(pages.block_table)
    spare = sorted(set(range(pages.key_pages.shape[0])) - set(table.ravel().tolist()))[0]  # all NaN
    table[0, : (131 - 9) // 16] = -1 if stale == "absent" else spare
    evicted = pages._replace(block_table=mx.array(table))
    got = packed_gradients(query, evicted, window=9)
    assert same_bits(want, got)
    assert not mx.isnan(got[1]).any()


@pytest.mark.parametrize(
    "options", [{}, {"causal": True, "window": 20}, {"softcap": 3.0, "scale": -0.5}], ids=str
)
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_a_batch_with_absent_pages_and_empty_contexts(options, dtype):
    """Tokens of absent pages are hidden; scores far below 0 would give them an infinite probability."""
    contexts = [70, 33, 0, -1]
    query, key, value = qkv(batch=(4,), L=9, S=70, dtype=dtype)
    pages = paged(-3 * key, value, contexts, 16)
    table = np.array(pages.block_table)
    table[0, 2], table[1, 0] = -1, 1000
    pages = pages._replace(block_table=mx.array(table))
    got = gradients(query, pages, None, native.attention_in_pages, hide_absent=True, **options)
    rows = mx.contiguous(query.swapaxes(1, 2)).reshape(-1, 4, 32)
    d_out, d_lse = (x.swapaxes(1, 2).reshape(-1, *x.shape[1:2], *x.shape[3:]) for x in cotangents(query))
    exact = page_gradients(
        to_float64(rows), *map(to_float64, pages[:2]), table, contexts, [9 * b for b in range(5)],
        to_float64(d_out), to_float64(d_lse), **options,
    )  # fmt: skip
    exact[0] = exact[0].reshape(4, 9, 4, 32).swapaxes(1, 2)
    for grad, want in zip(got, exact, strict=False):
        assert_close(grad, want, floor=GRADIENT_FLOOR[dtype] * np.abs(want).max())


def test_a_batch_with_fewer_rows_has_the_bits_of_packed_rows():
    pages, query = pools(), normal(5, 4, 9, 32)
    q_lens = [1, 9, 0, 5, 2]
    packed = mx.concatenate([query[b, :, :n].swapaxes(0, 1) for b, n in enumerate(q_lens)])

    def loss(query, key_pages, value_pages, **options):
        out = paged_attention(query, key_pages, value_pages, *pages[2:4], causal=True, **options)
        return out.square().sum()

    rows = [0, *np.cumsum(q_lens).tolist()]
    want = mx.grad(loss, argnums=(0, 1, 2))(packed, *pages[:2], cu_seqlens_q=rows)
    got = mx.grad(loss, argnums=(0, 1, 2))(query, *pages[:2], q_lens=q_lens)
    assert same_bits(want[1:], got[1:])
    for b, n in enumerate(q_lens):
        assert mx.array_equal(got[0][b, :, :n].swapaxes(0, 1), want[0][rows[b] : rows[b + 1]])
        assert not got[0][b, :, n:].any()


def test_the_flat_form_has_the_bits_of_a_batch():
    contexts = [70, 33]
    query, key, value = qkv(L=9, S=70)
    pages = paged(key, value, contexts, 16)

    def flat(q, k, v):
        heads = {"num_kv_heads": 2, "num_heads": 4}
        out = native.paged_attention(q.reshape(8, 9, 32), k, v, *pages[2:4], 0.2, True, **heads)
        return out.square().sum()

    def batch(q, k, v):
        return paged_attention(q, k, v, *pages[2:4], None, 0.2, "causal").square().sum()

    inputs = query, *pages[:2]
    assert same_bits(mx.grad(batch, argnums=(0, 1, 2))(*inputs), mx.grad(flat, argnums=(0, 1, 2))(*inputs))


def test_a_gradient_has_the_type_of_its_input():
    query, key, value = qkv(L=9, S=33)
    pages = paged(key.astype(mx.float16), value.astype(mx.float16), [33, 20], 16)
    got = mx.grad(lambda *x: paged_attention(*x, *pages[2:4]).sum(), argnums=(0, 1, 2))(query, *pages[:2])
    assert [x.dtype for x in got] == [mx.float32, mx.float16, mx.float16]


def test_sizes_of_zero():
    nothing = mx.zeros((0, 4, 32))
    pages = pools(contexts=[5])
    empty = pages._replace(block_table=mx.zeros((0, 3), mx.int32), context_lens=mx.zeros(0, mx.int32))
    for call, rows in ((empty, [0]), (pages, [0, 0])):
        got = gradients(nothing, call, cu_seqlens_q=rows)
        assert [x.shape for x in got] == [x.shape for x in (nothing, *pages[:2])]
        assert not any(x.any() for x in got[1:])


def test_only_the_requested_gradients_are_computed():
    pages, query = pools(), normal(78, 4, 32)
    sinks = normal(4, seed=5)
    every = packed_gradients(query, pages, sinks)
    arguments = {
        "query": query,
        "key_pages": pages.key_pages,
        "value_pages": pages.value_pages,
        "sinks": sinks,
    }
    rest = {"block_table": pages.block_table, "context_lens": pages.context_lens, "cu_seqlens_q": ROWS}

    def both(name, x):
        return list(paged_attention(**arguments | {name: x}, **rest, causal=True, return_lse=True))

    for (name, x), want in zip(arguments.items(), every, strict=True):
        got = mx.vjp(lambda x, name=name: both(name, x), [x], cotangents(query))[1]
        assert same_bits([want], got)
