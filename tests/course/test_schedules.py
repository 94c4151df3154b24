"""The readable V1 and V2: the cases in which a first FlashAttention goes wrong.

tests/mistakes/test_schedule_mistakes.py calls these tests with wrong schedules.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from tiny_llm.attention import attention_reference
from tiny_llm.course.schedules import flash_attention_v1, flash_attention_v2

from ..support.attention.check import compare
from ..support.finite_differences import gradient
from ..support.tolerance import max_error, same_bits, to_float64


def normal(L, S, E=16, heads=(1, 2), dtype=mx.float32, seed=0):
    mx.random.seed(seed)
    return [mx.random.normal((*heads, n, E)).astype(dtype) for n in (L, S, S)]


def check(schedule, q, k, v, tile=(16, 8), **options):
    return compare(*schedule(q, k, v, tile=tile, **options), q, k, v, **options)


def test_several_tiles_both_ways(schedule):
    check(schedule, *normal(48, 48))
    check(schedule, *normal(48, 48), causal=True)


def test_queries_and_keys_of_different_numbers(schedule):
    for L, S in ((8, 12), (33, 65), (40, 17), (1, 100), (100, 1)):
        check(schedule, *normal(L, S))
        check(schedule, *normal(L, S), causal=True)


def test_tails_that_do_not_fill_a_tile(schedule):
    for length in (1, 7, 9, 15, 17, 31, 33):
        check(schedule, *normal(length, length), causal=True)
    check(schedule, *normal(20, 20), tile=(64, 64))


def test_tiles_with_one_visible_key(schedule):
    check(schedule, *normal(16, 33), causal=True)  # the last row sees the first key of the last tile
    check(schedule, *normal(32, 32), window=10, causal=True)  # row 16 sees the last key of the first tile


def test_rows_without_keys(schedule):
    q, k, v = normal(20, 12)
    out, lse = schedule(q, k, v, causal=True, tile=(4, 4))  # more queries than keys: 8 rows see nothing
    assert mx.all(out[..., :8, :] == 0)
    assert mx.all(mx.isneginf(lse[..., :8]))
    check(schedule, q, k, v, causal=True)
    hidden = mx.ones((20, 12), mx.bool_)
    hidden[3] = False
    check(schedule, q, k, v, mask=hidden)


def test_no_keys_and_no_queries(schedule):
    out, lse = schedule(*normal(3, 0))
    assert out.shape == (1, 2, 3, 16)
    assert mx.all(out == 0)
    assert mx.all(mx.isneginf(lse))
    out, lse = schedule(*normal(0, 3))
    assert (out.shape, lse.shape) == ((1, 2, 0, 16), (1, 2, 0))


def test_the_first_tiles_are_hidden(schedule):
    """As in a batch that is padded on the left."""
    q, k, v = normal(8, 40)
    keys = mx.arange(40)
    check(schedule, q, k, v, mask=keys >= 21)
    check(schedule, q, k, v, mask=mx.where(keys >= 21, 0.0, -mx.inf))


def test_a_later_maximum_rescales_the_sums(schedule):
    q, k, v = normal(8, 32)
    check(schedule, q, k * mx.arange(32)[:, None], v)
    check(schedule, q, k * mx.arange(32, 0, -1)[:, None], v)


def test_a_finite_mask_is_added(schedule):
    q, k, v = normal(20, 28)
    mask = mx.random.normal((20, 28))
    check(schedule, q, k, v, mask=mx.where(mask > 1, -mx.inf, mask))
    check(schedule, q, k, v, mask=mask, causal=True)
    check(schedule, q, k, v, mask=(mask[:1] > 0)[None])


def test_windows(schedule):
    for window in (1, 4, 7, 8, 9, 64, (3, 5), (0, -1), (-1, 2)):
        for causal in (False, True):
            check(schedule, *normal(40, 40), window=window, causal=causal)
            check(schedule, *normal(24, 40), window=window, causal=causal)


def test_large_scores(schedule):
    q, k, v = normal(16, 24)
    for size in (1e3, 1e6, -1e8):  # softmax without a maximum overflows; a sentinel of -1e10 is not below all
        check(schedule, q * size, k, v)
    out, _ = schedule(mx.ones((1, 1)), mx.full((9, 1), -2e10), mx.ones((9, 1)), scale=1.0, tile=(1, 4))
    assert out.item() == 1


def test_nan_of_a_visible_key_surfaces(schedule):
    for which in range(3):
        inputs = normal(12, 12)
        inputs[which][..., 5, :] = mx.nan
        out, _ = schedule(*inputs, causal=True, tile=(4, 4))
        seen = mx.isnan(out).all(axis=-1)[0, 0].tolist()
        assert seen[5:] == [True] + [which > 0] * 6
        assert not any(seen[:4])  # row 4 shares a tile with key 5, where a hidden NaN value may leak


def test_a_row_of_nan_scores_is_nan_not_zero(schedule):
    q, k, v = normal(4, 20)
    out, lse = schedule(q, mx.full(k.shape, mx.nan), v, tile=(4, 8))
    assert mx.all(mx.isnan(out))
    assert mx.all(mx.isnan(lse))


def test_nan_of_a_hidden_key_has_no_effect(schedule):
    q, k, v = normal(12, 24)
    visible = mx.arange(24) != 5
    expected = schedule(q, k, v, mask=visible, tile=(4, 8))
    k[..., 5, :] = mx.nan
    for mask in (visible, mx.where(visible, 0.0, -mx.inf)):
        assert same_bits(schedule(q, k, v, mask=mask, tile=(4, 8)), expected)


def test_half_types_accumulate_in_float32(schedule):
    for dtype in (mx.float16, mx.bfloat16):
        check(schedule, *normal(33, 70, dtype=dtype), causal=True)
    q, k, v = (x.astype(mx.float16) for x in normal(8, 24))
    check(schedule, q * 300, k * 300, v)  # scores beyond float16


def test_a_group_of_heads_is_an_axis(schedule):
    q, k, v = normal(20, 20, heads=(2, 3))
    grouped, _ = schedule(mx.stack([q, -q], axis=2), k[:, :, None], v[:, :, None], causal=True, tile=(8, 8))
    for head, query in enumerate((q, -q)):
        assert mx.allclose(grouped[:, :, head], schedule(query, k, v, causal=True, tile=(8, 8))[0])


def test_the_size_of_a_tile_does_not_matter(schedule):
    q, k, v = normal(50, 50)
    for tile in ((1, 1), (3, 50), (50, 7), (64, 64)):
        check(schedule, q, k, v, tile=tile, causal=True, window=9)


def test_both_orders_add_the_same_tiles():
    q, k, v = normal(40, 56)
    for options in ({}, {"causal": True}, {"causal": True, "window": 11}):
        assert same_bits(
            *(f(q, k, v, tile=(16, 8), **options) for f in (flash_attention_v1, flash_attention_v2))
        )


def test_gradients_are_those_of_the_reference(schedule):
    inputs = normal(20, 28)
    weights = mx.random.normal((1, 2, 20, 16))

    def gradients(f, **options):
        def loss(q, k, v):
            out, lse = f(q, k, v, causal=True, **options)
            return (out * weights).sum() + lse.sum()

        return mx.grad(loss, (0, 1, 2))(*inputs)

    expected = gradients(attention_reference, return_lse=True)
    for got, want in zip(gradients(schedule, tile=(8, 8)), expected, strict=True):
        assert max_error(to_float64(got), to_float64(want)) <= 5e-6 * mx.abs(want).max().item()


def test_gradients_of_rows_without_keys_are_zero_and_finite(schedule):
    q, k, v = normal(9, 4)
    dq, dk, dv = mx.grad(lambda *x: schedule(*x, causal=True, tile=(4, 4))[0].square().sum(), (0, 1, 2))(
        q, k, v
    )
    assert mx.all(dq[..., :5, :] == 0)
    assert all(mx.isfinite(x).all() for x in (dq, dk, dv))


def test_a_gradient_agrees_with_finite_differences(schedule):
    q, k, v = normal(3, 5, E=2, heads=(1, 1))

    def loss(x):
        scores = x[0, 0] @ to_float64(k)[0, 0].T * 2**-0.5
        weights = np.exp(scores)
        return float(((weights / weights.sum(-1, keepdims=True)) @ to_float64(v)[0, 0]).sum())

    (want,) = gradient(loss, to_float64(q))
    got = mx.grad(lambda x: schedule(x, k, v, tile=(2, 2))[0].sum())(q)
    assert max_error(to_float64(got), want) <= 1e-5
