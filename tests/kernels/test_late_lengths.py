"""Lengths whose values are not there at the call are checked when it is evaluated, before anything else."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import attention_reference, flash_attention, paged_attention

from ..support.cases import DTYPE_IDS, DTYPES, qkv
from ..support.check import check
from ..support.late_errors import read_after_failure
from ..support.pages import paged

B, L, S = 2, 33, 65
BEYOND = pytest.mark.parametrize("values", [(0, S + 1), (-1, 0), (0, 2**32 + 1)], ids=str)


def inputs(dtype=mx.float32):
    return qkv(batch=(B,), L=L, S=S, E=16, dtype=dtype)


def late(*values):
    """Lengths that are not evaluated before the attention is."""
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
def test_the_fused_call_leaves_nan(argument, options):
    def call():
        lengths = {name: late(*values) for name, values in options.items()}
        return flash_attention(*inputs(), **lengths, return_lse=True)

    out, lse = read_after_failure(call, argument)
    assert np.isnan(out).all()
    assert np.isnan(lse).all()
    check(*inputs(), causal=True)  # the worker lives on


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_it_leaves_nan_in_every_dtype(dtype):
    """And not what an earlier result left in the memory."""
    mx.eval(flash_attention(*inputs(dtype)))
    (out,) = read_after_failure(lambda: [flash_attention(*inputs(dtype), kv_lens=late(1, S + 1))], "kv_lens")
    assert out.size > 0
    assert np.isnan(out).all()


@BEYOND
def test_the_reference_checks_them(values):
    def call():
        return [attention_reference(*inputs(), kv_lens=late(*values))]

    read_after_failure(call, "kv_lens", "attention_reference")


@BEYOND
def test_the_fallback_checks_them(values):
    def call():
        query, key, value = inputs()
        return [flash_attention(query, key, value[..., :-1], kv_lens=late(*values), on_fallback="allow")]

    read_after_failure(call, "kv_lens")


@BEYOND
def test_the_gradient_checks_them(values):
    def call():
        query, *others = inputs()
        gradient = mx.grad(lambda query: flash_attention(query, *others, kv_lens=late(*values)).sum())
        return [gradient(query)]

    read_after_failure(call, "kv_lens")


@BEYOND
def test_a_map_over_them_checks_them(values):
    def attend(lengths):
        query, key, value = inputs()
        return flash_attention(
            query, key, value[..., :-1], kv_lens=lengths, kv_start=late(0, 0), on_fallback="allow"
        )

    read_after_failure(lambda: [mx.vmap(attend)(late(*values).reshape(1, B))], "kv_lens")


def test_starts_and_lengths_must_end_before_the_buffer_does():
    def call():
        return [attention_reference(*inputs(), kv_start=late(0, 10), kv_lens=late(S, S - 9))]

    read_after_failure(call, "kv_lens", "attention_reference")


def test_a_context_beyond_its_row_of_the_table_leaves_nan():
    def call(excess):
        query, key, value = qkv(L=9, S=64)
        pages = paged(key, value, [64, 64], 16)
        slots = 16 * pages.block_table.shape[1]
        contexts = mx.array([slots, slots + excess])
        return [paged_attention(query, *pages._replace(context_lens=contexts))]

    (out,) = read_after_failure(lambda: call(1), "context_lens", "paged_attention")
    assert np.isnan(out).all()
    assert mx.isfinite(call(0)[0]).all()  # the worker lives on
