"""The oracle agrees with a loop written from the definition, with MLX, and with an example by hand."""

import math

import mlx.core as mx
import numpy as np
import pytest

from ..cases import qkv
from ..tolerance import to_float64
from . import oracle


def attention_of_one_row(q, keys, values, scale, softcap=None, bias=None, sink=None):
    """Softmax over the visible keys only, by plain Python floats."""
    scores = [scale * math.fsum(a * b for a, b in zip(q, key, strict=True)) for key in keys]
    if softcap is not None:
        scores = [softcap * math.tanh(s / softcap) for s in scores]
    if bias is not None:
        scores = [s + b for s, b in zip(scores, bias, strict=True)]
    terms = scores + ([] if sink is None else [sink])
    if not terms:
        return [0.0] * len(q), -math.inf
    lse = max(terms) + math.log(math.fsum(math.exp(t - max(terms)) for t in terms))
    weights = [math.exp(s - lse) for s in scores]
    columns = len(q)
    return [math.fsum(w * v[c] for w, v in zip(weights, values, strict=True)) for c in range(columns)], lse


@pytest.mark.parametrize("seed", range(30))
def test_oracle_equals_a_loop_over_the_visible_keys(seed):
    rng = np.random.default_rng(seed)
    L, S, E, heads, kv_heads = rng.integers(1, 6), rng.integers(0, 9), 3, 4, 2
    q = rng.standard_normal((2, heads, L, E))
    k, v = rng.standard_normal((2, 2, kv_heads, S, E))
    start = rng.integers(0, S + 1, 2)
    n_k = np.array([rng.integers(0, S - s + 1) for s in start])
    n_q = rng.integers(0, L + 1, 2)
    causal = bool(rng.integers(2))
    window = [None, 1, 2, 3, (1, 1), (-1, 0), (2, -1)][rng.integers(7)]
    softcap = [None, 2.0][rng.integers(2)]
    sinks = [None, rng.standard_normal(heads)][rng.integers(2)]
    mask = [None, rng.standard_normal((L, S)), rng.random((L, S)) < 0.5][rng.integers(3)]

    got = oracle.attention(
        q, k, v, 0.7, mask, causal=causal, window=window, softcap=softcap, sinks=sinks,
        q_lens=n_q, kv_start=start, kv_lens=n_k,
    )  # fmt: skip
    for b, h, i in np.ndindex(2, heads, L):
        keys = []
        for j in range(start[b], start[b] + n_k[b]):
            back = (i + n_k[b] - n_q[b]) - (j - start[b])  # the row's position minus the key's
            if isinstance(window, int) and causal:
                near = 0 <= back < window
            elif isinstance(window, int):
                near = -((window - 1) // 2) <= back <= window // 2
            else:
                left, right = window or (-1, -1)
                near = (left == -1 or back <= left) and (right == -1 or back >= -right)
            kept = mask is None or mask.dtype != bool or mask[i, j]
            if near and kept and (not causal or back >= 0):
                keys.append(j)
        real = i < n_q[b]
        keys = keys if real else []
        bias = mask[i, keys] if mask is not None and mask.dtype != bool else None
        sink = sinks[h] if sinks is not None and real else None
        kv_head = h // (heads // kv_heads)
        out, lse = attention_of_one_row(
            q[b, h, i], k[b, kv_head][keys], v[b, kv_head][keys], 0.7, softcap, bias, sink
        )
        np.testing.assert_allclose(got.out[b, h, i], out, rtol=0, atol=1e-12)
        np.testing.assert_allclose(got.lse[b, h, i], lse, rtol=0, atol=1e-12)


def test_interior_rows_of_a_window_see_exactly_that_many_keys():
    for width in (1, 2, 7, 8):
        for causal in (False, True):
            seen = oracle.visible_keys(40, 40, causal=causal, window=width)
            assert (seen.sum(axis=1)[10:30] == width).all()


@pytest.mark.parametrize("mask", [None, "causal"])
def test_oracle_equals_mlx_where_every_row_sees_a_key(mask):
    q, k, v = qkv(L=7, S=12, E=16)
    theirs = mx.fast.scaled_dot_product_attention(q, k, v, scale=0.25, mask=mask, stream=mx.cpu)
    ours = oracle.attention(*map(to_float64, (q, k, v)), 0.25, mask)
    np.testing.assert_allclose(ours.out, to_float64(theirs), rtol=0, atol=1e-6)


def test_oracle_reproduces_the_worked_example():
    """One query row and 32 keys of 8 numbers each, all exact in binary."""
    c, j = np.arange(8), np.arange(32)[:, None]
    q = (((3 * c + 1) % 8) - 4) / 8
    k = (((4 * j + 2 * c + 3 * j * c) % 31) - 15) / 16
    v = (((5 * j + 3 * c) % 13) - 6) / 8
    got = oracle.attention(q[None, None], k[None], v[None], scale=1.0)
    want = [-0.089866787285, -0.117183331914, 0.032360477755, 0.198195346962,
            -0.03305219936, -0.121350601002, 0.006746301223, 0.131328372023]  # fmt: skip
    np.testing.assert_allclose(got.out[0, 0], want, rtol=0, atol=1e-12)
    np.testing.assert_allclose(got.lse[0, 0], 3.6140019643801082, rtol=0, atol=1e-13)


def test_a_hidden_nan_has_no_effect_and_a_visible_nan_has():
    q, k, v = (np.ones((1, 2, 4)) for _ in range(3))
    k[0, 1] = v[0, 1] = np.nan
    got = oracle.attention(q, k, v, mask="causal")
    assert np.isfinite(got.out[0, 0]).all()
    assert np.isfinite(got.lse[0, 0])
    assert np.isnan(got.out[0, 1]).all()
    assert np.isnan(got.lse[0, 1])


def test_merging_parts_equals_the_whole():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, n, 4)) for n in (3, 9, 9))
    parts = [oracle.attention(q, k[:, a:b], v[:, a:b]) for a, b in ((0, 4), (4, 4), (4, 9))]
    whole = oracle.attention(q, k, v)
    np.testing.assert_allclose(oracle.merge(parts).out, whole.out, rtol=0, atol=1e-14)
    np.testing.assert_allclose(oracle.merge(parts).lse, whole.lse, rtol=0, atol=1e-14)
