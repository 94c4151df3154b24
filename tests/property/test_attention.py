"""Properties of attention, tested on random legal calls."""

import itertools

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_llm.attention import flash_attention, merge_partials

from ..support.attention.check import check, expected
from ..support.cases import DTYPES, qkv
from ..support.tolerance import FLOOR, assert_close
from .strategies import HEADS, problems

pytestmark = pytest.mark.usefixtures("on_the_cpu")
TRY = settings(max_examples=150)
FEW = settings(max_examples=40)


@TRY
@given(problems())
def test_every_call_equals_the_oracle(problem):
    check(problem.query, problem.key, problem.value, **problem.options)


@FEW
@given(st.integers(1, 200), st.lists(st.integers(0, 200), min_size=1, max_size=7), st.sampled_from(DTYPES))
def test_attention_over_parts_merges_into_the_whole(keys, cuts, dtype):
    q, k, v = qkv(L=9, S=keys, dtype=dtype)
    edges = [0, *sorted(min(cut, keys) for cut in cuts), keys]
    parts = [
        flash_attention(q, k[..., a:b, :], v[..., a:b, :], return_lse=True)
        for a, b in itertools.pairwise(edges)
    ]
    out, lse = merge_partials(parts)
    want = expected(q, k, v)
    assert_close(out, want.out, floor=2 * FLOOR[dtype])
    assert_close(lse, want.lse, floor=4 * FLOOR[mx.float32])


@FEW
@given(HEADS, st.integers(1, 130), st.integers(0, 1000))
def test_the_order_of_keys_does_not_matter(heads, keys, seed):
    q, k, v = qkv(heads=heads[0], kv_heads=heads[1], L=17, S=keys, seed=seed)
    order = mx.array(np.random.default_rng(seed).permutation(keys))
    out = flash_attention(q, k[..., order, :], v[..., order, :])
    assert_close(out, expected(q, k, v).out, floor=FLOOR[mx.float32])


@FEW
@given(st.integers(1, 130), st.integers(1, 130), st.booleans())
def test_equal_values_are_returned_unchanged(L, S, causal):
    """The weights of a row sum to one, or to zero where it sees nothing."""
    q, k, _ = qkv(L=L, S=S)
    out, lse = flash_attention(q, k, mx.full(k.shape, 3.0), causal=causal, return_lse=True)
    sees = (lse > -mx.inf)[..., None]
    assert mx.allclose(out, mx.where(sees, 3.0, 0.0), rtol=1e-6, atol=0)


@FEW
@given(problems(dtypes=(mx.float32, mx.bfloat16)))  # outputs of float16 are often subnormal
def test_doubling_the_values_doubles_the_output(problem):
    """Exactly, because a power of two changes only exponents."""
    once = flash_attention(*problem[:3], **problem.options)
    twice = flash_attention(problem.query, problem.key, 2 * problem.value, **problem.options)
    assert mx.array_equal(2 * once, twice)


@FEW
@given(problems(), st.integers(1, 70), st.integers(1, 70))
def test_padding_at_either_end_changes_no_bit(problem, before, after):
    q, k, v, options = problem
    S, batch = k.shape[-2], q.shape[:-3]
    start = options.get("kv_start", mx.zeros(batch, dtype=mx.int32))
    n_k = options.get("kv_lens", S - start)
    widths = [(0, 0)] * (k.ndim - 2) + [(before, after), (0, 0)]
    padded = (mx.pad(x, widths, constant_values=mx.nan) for x in (k, v))
    here = flash_attention(q, k, v, **options, return_lse=True)
    moved = options | {"kv_start": start + before, "kv_lens": n_k}
    mask = options.get("mask")
    if isinstance(mask, mx.array) and mask.ndim and mask.shape[-1] != 1:
        moved["mask"] = mx.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(before, after)])
    there = flash_attention(q, *padded, **moved, return_lse=True)
    assert all(mx.array_equal(a, b) for a, b in zip(here, there, strict=True))
