"""Lengths that are not computed at the call are checked at evaluation, before anything else."""

import mlx.core as mx
import pytest

from tiny_llm.attention import attention_reference, flash_attention, paged_attention

from ...support.attention.check import check
from ...support.attention.pages import paged
from ...support.cases import qkv
from ...support.late_errors import fails_whenever_evaluated
from ...support.processes.child import run_python
from ...support.refusal import refused

B, L, S = 2, 33, 65
BEYOND = pytest.mark.parametrize("values", [(0, S + 1), (-1, 0), (0, 2**32 + 1)], ids=str)


def inputs(dtype=mx.float32):
    return qkv(batch=(B,), L=L, S=S, E=16, dtype=dtype)


def late(*values):
    """Lengths that are computed together with the attention."""
    return mx.array(values, dtype=mx.int64) * 1


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("q_lens", {"q_lens": (L, L + 1)}),
        ("q_lens", {"q_lens": (-1, L)}),
        ("kv_start", {"kv_start": (0, S + 1)}),
        ("kv_start", {"kv_start": (-1, 0)}),
        ("kv_lens", {"kv_lens": (0, S + 1)}),
        ("kv_lens", {"kv_lens": (-1, 0)}),
        ("kv_lens", {"kv_start": (0, 10), "kv_lens": (S, S - 9)}),
        ("kv_lens", {"kv_lens": (0, 2**31 - 1)}),
    ],
    ids=str,
)
def test_the_fused_call_checks_them(argument, options):
    def call():
        lengths = {name: late(*values) for name, values in options.items()}
        return flash_attention(*inputs(), **lengths, return_lse=True)

    fails_whenever_evaluated(call, argument)
    check(*inputs(), causal=True)  # the worker thread still runs


@BEYOND
def test_the_reference_checks_them(values):
    def call():
        return [attention_reference(*inputs(), kv_lens=late(*values))]

    fails_whenever_evaluated(call, "kv_lens", "attention_reference")


@BEYOND
def test_the_fallback_checks_them(values):
    def call():
        query, key, value = inputs()
        return [flash_attention(query, key, value[..., :-1], kv_lens=late(*values), on_fallback="allow")]

    fails_whenever_evaluated(call, "kv_lens")


@BEYOND
def test_the_gradient_checks_them(values):
    def call():
        query, *others = inputs()
        gradient = mx.grad(lambda query: flash_attention(query, *others, kv_lens=late(*values)).sum())
        return [gradient(query)]

    fails_whenever_evaluated(call, "kv_lens")


@BEYOND
def test_a_map_over_them_checks_them(values):
    def attend(lengths):
        query, key, value = inputs()
        return flash_attention(
            query, key, value[..., :-1], kv_lens=lengths, kv_start=late(0, 0), on_fallback="allow"
        )

    fails_whenever_evaluated(lambda: [mx.vmap(attend)(late(*values).reshape(1, B))], "kv_lens")


def test_starts_and_lengths_must_end_before_the_buffer_does():
    def call():
        return [attention_reference(*inputs(), kv_start=late(0, 10), kv_lens=late(S, S - 9))]

    fails_whenever_evaluated(call, "kv_lens", "attention_reference")


def paged_call(excess, late=False):
    query, key, value = qkv(L=9, S=64)
    pages = paged(key, value, [64, 64], 16)
    slots = 16 * pages.block_table.shape[1]
    contexts = mx.array([slots, slots + excess])
    if late:
        contexts = contexts * 1
    return [paged_attention(query, *pages._replace(context_lens=contexts))]


def test_a_context_may_not_exceed_its_row_of_the_table():
    fails_whenever_evaluated(lambda: paged_call(1, late=True), "context_lens", "paged_attention")
    assert mx.isfinite(paged_call(0, late=True)[0]).all()  # the worker thread still runs


def test_a_computed_context_is_checked_at_the_call():
    with refused("context_lens", function="paged_attention"):
        paged_call(1)
    assert mx.isfinite(paged_call(0)[0]).all()


def test_results_computed_from_a_failure_fail_too():
    """Also if both are evaluated again, or only the second."""

    def call():
        out = flash_attention(*inputs(), kv_lens=late(1, S + 1))
        return [out + 1, mx.exp(out).sum()]

    fails_whenever_evaluated(call, "kv_lens")


def test_arrays_evaluated_together_with_a_failure_are_right():
    before, after = mx.arange(4) * 2, mx.arange(4) * 3
    with refused("kv_lens", RuntimeError):
        mx.eval(before, flash_attention(*inputs(), kv_lens=late(1, S + 1)), after)
    assert before.tolist() == [0, 2, 4, 6]
    assert after.tolist() == [0, 3, 6, 9]


def test_lengths_that_another_stream_computes_are_waited_for():
    query, key, value = inputs()
    with mx.stream(mx.new_stream(mx.cpu)):
        work = mx.ones((300, 300))
        for _ in range(20):
            work = mx.matmul(work, work) / 300  # long enough to still run at the call
        lengths = (work[0, :B] * 0 + S).astype(mx.int32)
    assert mx.array_equal(
        flash_attention(query, key, value, kv_lens=lengths), flash_attention(query, key, value)
    )


@pytest.mark.parametrize("asynchronously", [False, True])
def test_many_failures_leave_mlx_alive(asynchronously):
    """On the main thread, where MLX hung after ten failures had lost tasks."""
    program = f"""
import mlx.core as mx
from tiny_llm.attention import flash_attention, paged_attention
from tiny_llm.positional_encoding import RoPE
from extensions import tiny_llm_ext

evaluate = mx.async_eval if {asynchronously} else mx.eval
q = mx.zeros((1, 1, 8, 16))
table = mx.zeros((64, 8))
pages = mx.zeros((4, 1, 8, 16))
failures = 0
for i in range(600):
    late = mx.array([1000 + i]) * 1
    call = [
        lambda: flash_attention(q, q, q, kv_lens=late),
        lambda: paged_attention(q, pages, pages, mx.array([[0, 1]]), late, 8),
        lambda: tiny_llm_ext.rope(q, table, table, late),
    ][i % 3]
    try:
        evaluate(call() + 1)
    except RuntimeError:
        failures += 1
print(failures, mx.arange(5).sum().item())
"""
    done = run_python("-c", program)
    assert done.stdout == "600 10\n", done.stderr
