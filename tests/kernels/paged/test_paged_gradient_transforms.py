"""Gradients through pages: compiled, in memory linear in the tokens, and refused where there are none."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import explain, paged_attention

from ...support.attention.paged_calls import CONTEXTS, ROWS, packed_gradients, pools
from ...support.cases import normal
from ...support.native import last_run
from ...support.refusal import refused
from ...support.tolerance import same_bits

pytestmark = pytest.mark.usefixtures("on_the_cpu")


def test_compiled_gradients_serve_every_set_of_contexts():
    def gradient(query, key_pages, value_pages, table, contexts, begins):
        def loss(*x):
            return paged_attention(*x, table, contexts, causal=True, cu_seqlens_q=begins).square().sum()

        return mx.grad(loss, argnums=(0, 1, 2))(query, key_pages, value_pages)

    compiled, shapeless = mx.compile(gradient), mx.compile(gradient, shapeless=True)
    for contexts, rows in ((CONTEXTS, ROWS), ([33], [0, 5]), ([1, 300], [0, 1, 41])):
        pages = pools(contexts=contexts)
        inputs = normal(rows[-1], 4, 32), *pages[:4], mx.array(rows, dtype=mx.int32)
        want = gradient(*inputs)
        assert same_bits(want, compiled(*inputs))
        assert same_bits(want, shapeless(*inputs))


def test_training_the_tokens_of_a_shared_prefix():
    pages, query = pools(shared=True), normal(78, 4, 32)
    pages = pages._replace(key_pages=mx.nan_to_num(pages[0]), value_pages=mx.nan_to_num(pages[1]))

    def loss(value_pages):
        out = paged_attention(query, pages[0], value_pages, *pages[2:4], causal=True, cu_seqlens_q=ROWS)
        return (out - 1).square().mean()

    step = mx.compile(mx.value_and_grad(loss))
    values, losses = pages.value_pages, []
    for _ in range(5):
        now, grad = step(values)
        losses.append(now.item())
        values = values - 100 * grad
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.9 * losses[0]


def test_memory_doubles_when_every_context_doubles():
    peaks, plans = [], []
    for N in (400, 800, 1600):
        rows = [0, N, N + N // 10]
        pages, query = pools(contexts=[N, N // 2]), normal(rows[-1], 4, 32)
        mx.eval(query, *pages[:4])
        options = {"causal": True, "cu_seqlens_q": rows}
        plan = explain(paged_attention, query, *pages, **options)

        def loss(*x, pages=pages, options=options):
            return paged_attention(*x, *pages[2:4], **options).sum()

        mx.eval(mx.grad(loss, argnums=(0, 1, 2))(query, *pages[:2]))  # allocates the scratch of threads
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        mx.eval(mx.grad(loss, argnums=(0, 1, 2))(query, *pages[:2]))
        peaks.append(mx.get_peak_memory() - before)
        plans.append(plan)
        outputs = 3 * query.nbytes + sum(x.nbytes for x in pages[:2])  # with the output and its cotangent
        assert peaks[-1] <= plan.workspace_bytes_backward + outputs + 2**20
    for sizes in (peaks, [plan.saved_bytes for plan in plans]):
        assert all(1.9 <= b / a <= 2.1 for a, b in itertools.pairwise(sizes)), sizes


def test_bad_ids_are_refused_before_anything_is_computed():
    pages, query = pools(), normal(78, 4, 32)
    bad = np.array(pages.block_table)
    bad[0, 0] = pages.key_pages.shape[0]
    wrong = pages._replace(block_table=mx.array(bad))
    with refused("block_table", function="paged_attention"):
        packed_gradients(query, wrong)
    late = pages._replace(block_table=mx.array(bad - 1) + 1)
    before = last_run()
    with refused("block_table", RuntimeError, "paged_attention"):
        mx.eval(packed_gradients(query, late))
    assert last_run() == before


def test_a_scale_in_an_array_has_no_gradient():
    pages, query = pools(), normal(78, 4, 32)
    with pytest.raises(NotImplementedError, match=r"^paged_attention: scale: got a gradient"):
        mx.grad(lambda s: paged_attention(query, *pages[:4], scale=s, cu_seqlens_q=ROWS).sum())(mx.array(0.2))


def test_a_second_derivative_and_forward_mode_are_refused():
    pages, query = pools(), normal(78, 4, 32)
    attend = lambda q: paged_attention(q, *pages[:4], cu_seqlens_q=ROWS)  # noqa: E731
    first = mx.grad(lambda q: attend(q).sum())
    alternative = "is not supported; use attention_reference on gathered keys and values$"
    with pytest.raises(NotImplementedError, match=rf"^second derivative of paged_attention {alternative}"):
        mx.grad(lambda q: first(q).sum())(query)
    with pytest.raises(NotImplementedError, match=rf"^second derivative of paged_attention {alternative}"):
        mx.jvp(lambda d: mx.vjp(attend, [query], [d])[1], [query], [query])
    with pytest.raises(NotImplementedError, match=rf"^paged_attention: jvp {alternative}"):
        mx.jvp(attend, [query], [query])
