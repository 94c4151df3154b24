"""Packed queries of any lengths against pages: what `flash_attention` gives on each sequence's dense keys."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import (
    explain,
    flash_attention,
    flash_attention_varlen,
    paged_attention,
    paged_attention_decode,
)
from tiny_llm.runtime.extension import load_extension

from ...support.attention.pages import Pages, paged
from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.covering import pairwise
from ...support.native import available_isas, last_run
from ...support.tolerance import FLOOR, to_float64

native = load_extension()
H, D = 2, 32


class Call:
    """Queries q_sizes[b] rows each, at the end of contexts[b] tokens in pages of that size."""

    def __init__(self, q_sizes, contexts, page_size=16, *, heads=4, kv_heads=H, E=D, dtype=mx.float32):
        self.q_sizes, self.contexts = q_sizes, contexts
        self.rows = [0, *np.cumsum(q_sizes).tolist()]
        self.query = normal(sum(q_sizes), heads, E, dtype=dtype)
        longest = max([*contexts, 1])
        self.key, self.value = (
            normal(len(contexts), kv_heads, longest, E, dtype=dtype, seed=seed) for seed in (1, 2)
        )
        self.pages = paged(self.key, self.value, contexts, page_size)

    def run(self, pages: Pages | None = None, **options):
        options = {"causal": True, "cu_seqlens_q": self.rows, "return_lse": True} | options
        return paged_attention(self.query, *(pages or self.pages), **options)

    def dense(self, **options):
        """The packed rows over packed keys: bit for bit the expected result."""
        rows = [0, *np.cumsum(self.contexts).tolist()]
        key, value = (
            mx.concatenate([x[b, :, :n].swapaxes(0, 1) for b, n in enumerate(self.contexts)])
            for x in (self.key, self.value)
        )
        options = {"causal": True, "return_lse": True} | options
        return flash_attention_varlen(self.query, key, value, self.rows, rows, **options)

    def check(self, pages: Pages | None = None, **options):
        layout = {"layout": options.pop("layout")} if "layout" in options else {}
        got, want = self.run(pages, **options, **layout), self.dense(**options)
        for x, y in zip(got, want, strict=True):
            assert (x.shape, x.dtype) == (y.shape, y.dtype)
            assert mx.array_equal(x, y)


def slots_outside(pages: Pages) -> Pages:
    """Pages [P, page, H, D]."""
    return pages._replace(
        key_pages=mx.contiguous(pages.key_pages.swapaxes(1, 2)),
        value_pages=mx.contiguous(pages.value_pages.swapaxes(1, 2)),
    )


@pairwise(
    {"page_size": [1, 7, 16, 64, 256], "contexts": [(0, 70), (15, 16), (17, 300), (1, 5), (5000, 63)],
     "layout": ["PHSE", "PSHE"], "dtype": [*DTYPES], "decode": [False, True]}
)  # fmt: skip
def test_equal_to_dense_keys(page_size, contexts, layout, dtype, decode):
    """In every bit, with NaN in all free slots; queries before the first token give zeros."""
    call = Call([1, 1] if decode else [5, 33], list(contexts), page_size, dtype=dtype)
    call.check(slots_outside(call.pages) if layout == "PSHE" else None, layout=layout)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_instruction_sets(isa, dtype):
    call = Call([1, 33, 7], [40, 131, 300], 16, E=64, dtype=dtype)
    out, _ = native.attention_in_pages(
        call.query, *call.pages[:4], causal=True, cu_seqlens_q=call.rows, isa=isa
    )
    want, _ = call.dense()
    assert np.abs(to_float64(out) - to_float64(want)).max() <= 2 * FLOOR[dtype]


def test_decode_prefill_and_speculative_rows_in_one_call():
    call = Call([1, 130, 0, 9, 1], [5000, 300, 17, 64, 0], 16, heads=8)
    call.check()
    assert last_run()["path"].startswith("cpu.")


@pytest.mark.parametrize(
    "options",
    [{"causal": False}, {"window": 9}, {"window": (3, 5), "causal": False}, {"softcap": 4.0},
     {"sinks": mx.array([0.5, -1.0, 2.0, 0.0])}, {"scale": 0.3},
     {"window": 70, "softcap": 4.0, "sinks": mx.array([0.5, -1.0, 2.0, 0.0])}],
    ids=lambda options: "-".join(options),
)  # fmt: skip
def test_options(options):
    Call([1, 33, 7], [40, 131, 300], 7).check(**options)


@pytest.mark.parametrize("L", [2, 8, 16, 33, 64])
def test_speculative_rows_of_one_kv_head(L):
    call = Call([L, L], [1000, 70], 16, heads=8, kv_heads=1)
    call.check()


@pytest.mark.parametrize("stale", ["absent", "foreign"])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("sizes", [[1, 1], [4, 70]], ids=["decode", "prefill"])
def test_evicted_pages_before_a_window(sizes, dtype, stale):
    """Their tokens are hidden from every query, so their ids may be -1, and their pages may hold anything."""
    call = Call(sizes, [300, 250], 16, dtype=dtype)
    want = call.run(window=40)
    used = set(call.pages.block_table.flatten().tolist())
    all_nan = next(page for page in range(call.pages.key_pages.shape[0]) if page not in used)
    for b, (n_q, n_k) in enumerate(zip(sizes, call.contexts, strict=True)):
        first = (n_k - n_q - 39) // 16
        assert first > 2
        call.pages.block_table[b, :first] = -1 if stale == "absent" else all_nan
    got = call.run(window=40)
    assert mx.array_equal(got[0], want[0])
    assert mx.array_equal(got[1], want[1])


def test_a_prefix_in_pages_gives_the_same_as_a_cold_run():
    """The last 33 of 131 tokens, when the first 98 are in pages already; one kernel, so the same bits."""
    call = Call([131], [131], 16)
    cold, _ = call.run()
    call.query, call.rows = call.query[98:], [0, 33]
    assert mx.array_equal(call.run()[0], cold[98:])


def test_shared_pages():
    call = Call([1, 1], [64, 40], 16)
    table = mx.stack([call.pages.block_table[0]] * 2)
    pages = call.pages._replace(block_table=table, context_lens=mx.array([64, 64]))
    query = mx.concatenate([call.query[:1]] * 2)
    out = paged_attention(query, *pages, causal=True)
    assert mx.array_equal(out[0], out[1])
    assert mx.array_equal(out[0], call.run()[0][0])


def test_the_place_of_pages_neighbours_and_threads_do_not_change_a_bit():
    sizes, contexts = [1, 33, 7, 1], [5000, 131, 300, 17]
    call = Call(sizes, contexts, 16, dtype=mx.bfloat16)
    together = call.run()
    for seed in (5, 6):
        moved = call.run(paged(call.key, call.value, contexts, 16, seed=seed))
        assert all(mx.array_equal(a, b) for a, b in zip(together, moved, strict=True))
    for b, n in enumerate(sizes):
        rows = slice(call.rows[b], call.rows[b + 1])
        alone = paged_attention(
            call.query[rows], call.pages.key_pages, call.pages.value_pages,
            call.pages.block_table[b : b + 1], call.pages.context_lens[b : b + 1],
            causal=True, cu_seqlens_q=[0, n],
        )  # fmt: skip
        assert mx.array_equal(alone, together[0][rows])
    for threads in (1, 5):
        out, _ = native.attention_in_pages(
            call.query, *call.pages[:4], causal=True, cu_seqlens_q=call.rows, threads=threads
        )
        assert mx.array_equal(out, together[0])


def test_lengths_of_queries():
    """The rows after q_lens are padding: zeros, and NaN in them has no effect."""
    call = Call([9, 33], [70, 131], 16)
    q_lens, valid = [4, 33], np.arange(42) < 4
    valid[9:] = True
    call.query = mx.where(mx.array(valid)[:, None, None], call.query, mx.nan)
    out, lse = call.run(q_lens=q_lens)
    assert (to_float64(out)[4:9] == 0).all()
    assert (to_float64(lse)[4:9] == -np.inf).all()
    want = flash_attention(
        call.query[None, :4].swapaxes(1, 2), call.key[:1, :, :70], call.value[:1, :, :70], causal=True
    )
    assert mx.array_equal(out[:4], want[0].swapaxes(0, 1))


def test_a_batch_has_the_options_too():
    call = Call([5, 5], [70, 131], 16)
    batch = call.query.reshape(2, 5, 4, D).swapaxes(1, 2)
    sinks = mx.array([0.5, -1.0, 2.0, 0.0])
    options = {"window": 20, "softcap": 5.0, "sinks": sinks, "causal": True, "return_lse": True}
    out, lse = paged_attention(batch, *call.pages, **options)
    want, want_lse = call.run(**options)
    assert mx.array_equal(out.swapaxes(1, 2).reshape(10, 4, D), want)
    assert mx.array_equal(lse.swapaxes(1, 2).reshape(10, 4), want_lse)
    short, _ = paged_attention(batch, *call.pages, q_lens=[2, 5], **options)
    assert (to_float64(short)[0, :, 2:] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_decode_of_minivllm(dtype):
    call = Call([1, 1, 1], [40, 0, 300], 16, dtype=dtype)
    key, value, table, contexts = slots_outside(call.pages)[:4]
    out = paged_attention_decode(call.query, key, value, table, contexts, 0.25, 4, H, D, 16)
    want, _ = call.dense(scale=0.25)
    assert mx.array_equal(out, want)
    assert not mx.any(out[1])


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("layout", ["PHSE", "PSHE"])
def test_pools_are_neither_copied_nor_converted(layout, dtype):
    call = Call([1, 9], [300, 131], 16, E=128, dtype=dtype)
    spare = mx.zeros((4000, *call.pages.key_pages.shape[1:]), dtype)
    pages = call.pages._replace(
        key_pages=mx.concatenate([call.pages.key_pages, spare]),
        value_pages=mx.concatenate([call.pages.value_pages, spare]),
    )
    pages = slots_outside(pages) if layout == "PSHE" else pages
    mx.eval(call.query, *pages[:4])
    mx.eval(call.run(pages, layout=layout))  # starts the threads
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.eval(call.run(pages, layout=layout))
    assert mx.get_peak_memory() - before < 2**20 < pages.key_pages.nbytes


def test_explain_names_the_path_that_runs_and_counts_its_tiles():
    for sizes, contexts in (([1, 33], [300, 131]), ([1, 1], [5000, 3]), ([70], [70])):
        call = Call(sizes, contexts)
        options = {"causal": True, "cu_seqlens_q": call.rows}
        plan = explain(paged_attention, call.query, *call.pages, **options)
        mx.eval(paged_attention(call.query, *call.pages, **options))
        run = last_run()
        names = ("path", "splits", "tiles_visited", "tiles_total")
        assert {name: getattr(plan, name) for name in names} == {name: run[name] for name in names}
        assert (plan.fused, plan.copies_bytes) == (True, 0)
