"""Paged attention without a kernel: on_fallback decides, and the reference runs on a copy of the pages."""

import warnings
from functools import partial

import mlx.core as mx
import pytest

from tiny_llm.attention import explain, flash_attention_varlen, paged_attention
from tiny_llm.runtime.extension import load_extension

from ...support.attention.packed import cumulative
from ...support.attention.pages import paged
from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.native import last_run
from ...support.tolerance import FLOOR, GRADIENT_FLOOR, assert_close, to_float64

native = load_extension()
SINKS = mx.array([0.5, -1.0, 2.0, 0.0])
CONTEXTS, ROWS = [300, 0, 70], [9, 1, 33]
as_on_a_gpu = partial(native.attention_in_pages, own_kernels=False, on_fallback="allow", return_lse=True)


def packed(E=32, page_size=16, dtype=mx.float32):
    """Packed queries, pages with NaN in every free slot, and cu_seqlens_q."""
    key, value = normal(2, 3, 2, 300, E, dtype=dtype)
    query = normal(sum(ROWS), 4, E, dtype=dtype, seed=1)
    return query, paged(key, value, CONTEXTS, page_size), cumulative(ROWS)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"window": 20, "causal": True}, {"softcap": 4.0, "sinks": SINKS},
     {"q_lens": [5, 0, 33], "causal": True}],
    ids=lambda options: "-".join(options) or "full",
)  # fmt: skip
def test_the_reference_has_every_option(options, dtype):
    query, pages, rows = packed(page_size=7, dtype=dtype)
    got = as_on_a_gpu(query, *pages[:4], cu_seqlens_q=rows, **options)
    assert last_run()["path"] == "reference"
    want = paged_attention(query, *pages, cu_seqlens_q=rows, return_lse=True, **options)
    for x, y in zip(got, want, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        assert_close(x, to_float64(y), floor=FLOOR[dtype])


@pytest.mark.parametrize("layout", ["PHSE", "PSHE"])
def test_the_reference_has_batches_and_both_layouts(layout):
    key, value = normal(2, 3, 2, 150, 32)
    query, pages = normal(3, 4, 9, 32, seed=1), paged(key, value, [150, -3, 70], 16)
    want = paged_attention(query, *pages, None, "causal", return_lse=True)
    if layout == "PSHE":
        turned = (x.swapaxes(1, 2) for x in pages[:2])
        pages = pages._replace(**dict(zip(("key_pages", "value_pages"), turned, strict=True)))
    got = as_on_a_gpu(query, *pages[:4], causal=True, layout=layout)
    for x, y in zip(got, want, strict=True):
        assert_close(x, to_float64(y), floor=FLOOR[mx.float32])
    assert not got[0][1].any()


def test_ids_that_are_not_known_at_the_call_give_nan_to_the_rows_that_see_them():
    """A GPU cannot raise. The rows of other sequences, and those behind the causal limit, are whole."""
    query, pages, rows = packed()
    want, _ = as_on_a_gpu(query, *pages[:4], cu_seqlens_q=rows, causal=True)
    pages.block_table[2, 3] = 1000  # tokens 48 to 63 of 70; the queries are at 37 to 69
    got, _ = as_on_a_gpu(
        query, *pages[:2], pages.block_table + 0, *pages[3:4], cu_seqlens_q=rows, causal=True
    )
    first = rows[2] + 48 - 37
    assert mx.array_equal(got[:first], want[:first])
    assert mx.isnan(got[first:]).all()


@pytest.mark.parametrize("absent", [-1, 1000])
def test_a_call_of_the_course_hides_absent_pages(absent):
    key, value = normal(2, 2, 2, 150, 32)
    query, pages = normal(2, 4, 9, 32, seed=1), paged(key, value, [150, 70], 16)
    pages.block_table[0, 1] = absent
    got, _ = as_on_a_gpu(query, *pages[:4], causal=True, hide_absent=True)
    want = paged_attention(query, *pages, mask="causal")
    assert_close(got, to_float64(want), floor=FLOOR[mx.float32])


def test_pools_of_no_page_hold_no_context():
    pool, table = mx.zeros((0, 2, 16, 32)), mx.full((2, 3), -1, dtype=mx.int32)
    out, lse = as_on_a_gpu(normal(2, 4, 5, 32), pool, pool, table, mx.array([0, 0]))
    assert not out.any()
    assert (lse == -mx.inf).all()


INPUTS = ("query", "key_pages", "value_pages", "table", "contexts")


def of_each_entry():
    """The arrays of two calls over pools without free slots, the second with other pages and contexts."""
    query, pages, rows = packed(page_size=16)
    table, contexts = pages.block_table, pages.context_lens
    other = mx.where(table < 0, table, (table + 7) % len(pages.key_pages))
    pools = [mx.nan_to_num(x) for x in pages[:2]]
    first = [query, *pools, table, contexts]
    return first, [2 * query, *(x[::-1] for x in pools), other, contexts - mx.array([30, 0, 10])], rows


def test_the_reference_has_derivatives():
    (query, *pages, table, contexts), _, rows = of_each_entry()

    def attend(function, *x):
        return list(function(*x, table, contexts, cu_seqlens_q=rows, causal=True, return_lse=True))

    cotangents = [normal(*query.shape, seed=2), normal(43, 4, seed=3)]
    got, want = (
        mx.vjp(partial(attend, f), [query, *pages], cotangents)[1] for f in (as_on_a_gpu, paged_attention)
    )
    for x, y in zip(got, want, strict=True):
        assert_close(x, to_float64(y), floor=GRADIENT_FLOOR[mx.float32] * mx.abs(y).max().item())
    _, (tangent,) = mx.jvp(lambda q: attend(as_on_a_gpu, q, *pages)[0], [query], [cotangents[0]])
    backward = mx.vjp(lambda q: attend(paged_attention, q, *pages)[0], [query], [cotangents[0]])[1][0]
    assert mx.allclose((tangent * cotangents[0]).sum(), (backward * cotangents[0]).sum(), rtol=1e-4)


@pytest.mark.parametrize("mapped", [INPUTS, *((name,) for name in INPUTS)], ids="-".join)
def test_the_reference_is_mapped(mapped):
    first, second, rows = of_each_entry()
    inputs = [
        mx.stack([x, y]) if name in mapped else x for name, x, y in zip(INPUTS, first, second, strict=True)
    ]
    attend = partial(as_on_a_gpu, cu_seqlens_q=rows, causal=True)
    together = mx.vmap(attend, in_axes=tuple(0 if n in mapped else None for n in INPUTS))(*inputs)
    for i in range(2):
        alone = attend(*(x[i] if n in mapped else x for n, x in zip(INPUTS, inputs, strict=True)))
        for x, y in zip(together, alone, strict=True):
            assert_close(x[i], to_float64(y), floor=FLOOR[mx.float32])


def wide():
    """Heads too large for the kernels."""
    query, pages, rows = packed(E=257)
    return partial(paged_attention, query, *pages, cu_seqlens_q=rows)


def test_on_fallback_raises():
    with pytest.raises(
        NotImplementedError, match=r"^paged_attention: no fused kernel: .*257.*256.*; on_fallback="
    ):
        wide()(on_fallback="error")
    with pytest.raises(ValueError, match=r"^paged_attention: on_fallback: got 'maybe'"):
        wide()(on_fallback="maybe")


def test_on_fallback_allows_what_dense_keys_give():
    key, value = normal(2, 1, 2, 70, 257)
    query = normal(9, 4, 257, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = paged_attention(
            query, *paged(key, value, [70], 16), cu_seqlens_q=[0, 9], causal=True, on_fallback="allow"
        )
    dense = (x[0].swapaxes(0, 1) for x in (key, value))
    want = flash_attention_varlen(query, *dense, [0, 9], [0, 70], causal=True, on_fallback="allow")
    assert_close(out, to_float64(want), floor=FLOOR[mx.float32])


def test_a_fallback_is_reported_once():
    """For each reason: no other test has this head size."""
    query, pages, rows = packed(E=263)
    with pytest.warns(UserWarning, match=r"^paged_attention: falling back .*263"):
        paged_attention(query, *pages, cu_seqlens_q=rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paged_attention(query, *pages, cu_seqlens_q=rows)


def test_batch_invariance_is_refused_where_no_kernel_guarantees_it():
    text = r"^paged_attention: no fused kernel that is batch invariant: .*; batch_invariant=False"
    with pytest.raises(NotImplementedError, match=text):
        wide()(batch_invariant=True, on_fallback="allow")


def test_explain_says_that_the_reference_runs_and_bounds_its_memory():
    query, pages, rows = packed(E=257)
    plan = explain(paged_attention, query, *pages, cu_seqlens_q=rows)
    assert (plan.path, plan.fused, plan.backward_path) == ("reference", False, "reference")
    assert (plan.batch_invariant, plan.deterministic) == (False, True)
    assert "257" in plan.reasons[0]
    refused = explain(paged_attention, query, *pages, cu_seqlens_q=rows, batch_invariant=True)
    assert "refused" in refused.reasons[1]
    mx.eval(query, *pages[:4])
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.eval(paged_attention(query, *pages, cu_seqlens_q=rows, on_fallback="allow"))
    assert mx.get_peak_memory() - before <= plan.workspace_bytes + query.nbytes + 2**16
