"""`explain` predicts paged attention: the path, the tiles, the memory, and what a GPU does instead."""

import mlx.core as mx
import pytest

from tiny_llm.attention import explain, paged_attention

from ...support import native
from ...support.attention.pages import paged
from ...support.cases import DTYPE_IDS, DTYPES, qkv
from ...support.refusal import refused


def call(L=9, contexts=(300, 131), page_size=16, dtype=mx.float32, S=None):
    query, key, value = qkv(batch=(len(contexts),), L=L, S=S or max(contexts), E=64, dtype=dtype)
    return query, *paged(key, value, list(contexts), page_size)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize(
    ("L", "contexts"), [(1, (5000, 1500)), (4, (5000,)), (9, (300, 131)), (70, (300, 0, 5)), (1, (1,))]
)
def test_the_run_takes_the_predicted_path(L, contexts, mask, dtype):
    inputs = call(L, contexts, dtype=dtype)
    plan = explain(paged_attention, *inputs, None, mask)
    mx.eval(paged_attention(*inputs, None, mask))
    run = native.last_run()
    names = ("path", "splits", "tiles_visited", "tiles_total")
    assert {name: getattr(plan, name) for name in names} == {name: run[name] for name in names}
    assert (plan.fused, plan.reasons) == (True, ())


def test_a_gradient_takes_the_predicted_path_and_saves_the_predicted_bytes():
    query, key_pages, value_pages, *rest = call()
    plan = explain(paged_attention, query, key_pages, value_pages, *rest)
    mx.eval(mx.grad(lambda q: paged_attention(q, key_pages, value_pages, *rest).sum())(query))
    run = native.last_run()
    assert plan.backward_path == run["path"] == "cpu.backward"
    assert plan.backward_schedule == run["backward_schedule"] == "two_passes"
    lse_bytes = 4 * query.size // query.shape[-1]
    assert plan.saved_bytes == 2 * query.nbytes + key_pages.nbytes + value_pages.nbytes + lse_bytes


def test_contexts_that_are_not_computed_yet_count_as_full():
    query, key_pages, value_pages, table, contexts, page_size = call()
    later = explain(paged_attention, query, key_pages, value_pages, table, contexts + 0, page_size)
    slots = mx.full(contexts.shape, table.shape[1] * page_size, dtype=mx.int32)
    full = explain(paged_attention, query, key_pages, value_pages, table, slots, page_size)
    assert later == full


def test_a_copy_is_predicted_if_pages_have_gaps():
    query, key_pages, value_pages, *rest = call()
    gaps = mx.repeat(value_pages, 2, axis=3)[..., ::2]
    mx.eval(gaps)
    assert explain(paged_attention, query, key_pages, value_pages, *rest).copies_bytes == 0
    plan = explain(paged_attention, query, key_pages, gaps, *rest)
    assert plan.copies_bytes == value_pages.nbytes
    assert plan.workspace_bytes >= plan.copies_bytes


@pytest.mark.parametrize("of_pages", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("of_query", DTYPES, ids=DTYPE_IDS)
def test_copies_of_pages_in_another_type_are_counted(of_query, of_pages):
    """Only a call of the course makes them."""
    query, key_pages, value_pages, *rest = call()
    arrays = query.astype(of_query), key_pages.astype(of_pages), value_pages.astype(of_pages)
    mixed = of_query != of_pages
    copies = sum(4 * x.size for x in arrays if mixed and x.dtype != mx.float32)
    mx.eval(*arrays, paged_attention(*arrays, *rest))
    plan = explain(paged_attention, *arrays, *rest)
    assert plan.copies_bytes == copies
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    out = paged_attention(*arrays, *rest)
    mx.eval(out)
    mx.synchronize()
    assert mx.get_peak_memory() - before - out.nbytes <= plan.workspace_bytes + 2**16
    assert plan.workspace_bytes >= copies


def test_the_kernel_needs_no_more_memory_than_predicted():
    inputs = call(L=1, contexts=(5000, 1500))
    mx.eval(*inputs[:5])
    mx.eval(paged_attention(*inputs))  # starts the thread pool and allocates its scratch
    plan = explain(paged_attention, *inputs)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    out = paged_attention(*inputs)
    mx.eval(out)
    assert plan.path == "cpu.split"
    lse = out.size // out.shape[-1] * 4
    page = 16384
    assert mx.get_peak_memory() - before <= plan.workspace_bytes + out.nbytes + lse + 4 * page


def test_explain_refuses_the_arguments_that_the_call_refuses():
    query, key_pages, value_pages, table, contexts, page_size = call()
    with refused("key_pages", function="paged_attention"):
        explain(paged_attention, query, key_pages, value_pages, table, contexts, page_size + 1)
    with refused("context_lens", function="paged_attention"):
        explain(paged_attention, query, key_pages, value_pages, table, mx.array([300, 5000]), page_size)
