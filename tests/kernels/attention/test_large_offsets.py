"""Indices beyond 2^31, in arrays with huge shapes and little memory: strides are 0 or overlap."""

import math

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import explain, flash_attention

from ...support.attention.check import check, expected
from ...support.cases import lengths, normal, qkv
from ...support.tolerance import FLOOR, assert_close

HUGE = 2**31 - 1  # the longest axis that MLX has


def broadcast_keys(n):
    """One key and one value, broadcast n times."""
    return (mx.broadcast_to(normal(1, 1, 1, 8, seed=seed), (1, 1, n, 8)) for seed in (1, 2))


@pytest.mark.parametrize("start", [0, 5, HUGE - 70])
def test_the_end_of_a_cache_of_two_billion_keys(start):
    q = normal(1, 2, 33, 8)
    k, v = broadcast_keys(HUGE)
    out, lse = flash_attention(
        q, k, v, causal=True, kv_start=lengths(start), kv_lens=lengths(70), return_lse=True
    )
    want = expected(q, *broadcast_keys(70), causal=True)
    assert_close(out, want.out, floor=FLOOR[mx.float32])
    assert_close(lse, want.lse, floor=4 * FLOOR[mx.float32])


def test_a_window_at_the_end_of_two_billion_keys():
    """The positions of the rows, not only their offsets, need more than 31 bits."""
    q = normal(1, 2, 3, 8)
    k, v = broadcast_keys(HUGE)
    out, lse = flash_attention(q, k, v, causal=True, window=70, return_lse=True)
    want = expected(q, *broadcast_keys(200), causal=True, window=70)
    assert_close(out, want.out, floor=FLOOR[mx.float32])
    assert_close(lse, want.lse, floor=4 * FLOOR[mx.float32])


@pytest.mark.parametrize("kind", ["bool", "f32"])
def test_a_mask_of_more_than_two_to_the_31_elements(kind):
    """mask[i, j] = band[i + j]: 65,000 x 65,000 entries of 130,000 numbers; a window bounds the work."""
    n = 65000
    rng = np.random.default_rng(0)
    band = (
        mx.array(rng.random(2 * n) < 0.7)
        if kind == "bool"
        else mx.array(rng.standard_normal(2 * n), mx.float32)
    )
    mask = mx.as_strided(band, (n, n), (1, 1))
    q, k, v = qkv(batch=(), heads=1, kv_heads=1, L=n, E=8)
    out, lse = flash_attention(q, k, v, mask=mask, window=(3, 0), return_lse=True)
    assert n * n > 2**31
    for rows in (slice(0, 20), slice(33000, 33020), slice(n - 20, n)):
        keys = slice(max(0, rows.start - 3), rows.stop)
        part = [q[:, rows], k[:, keys], v[:, keys]]
        want = expected(*part, mask=mask[rows, keys], window=(3, 0))
        assert_close(out[:, rows], want.out, floor=FLOOR[mx.float32])
        assert_close(lse[:, rows], want.lse, floor=4 * FLOOR[mx.float32])


def test_a_batch_of_more_than_two_to_the_31_elements():
    """The last entry of the batch is right, like the first."""
    one = qkv(batch=(1,), heads=1, kv_heads=1, L=1, S=5, E=8)
    q, k, v = (mx.broadcast_to(x, (2000, *x.shape[1:])) for x in one)
    out = flash_attention(q, k, v)
    assert mx.array_equal(out, mx.broadcast_to(flash_attention(*one), out.shape))


def test_tiles_are_counted_in_64_bits():
    q = mx.broadcast_to(mx.zeros((1, 1, 1)), (1, HUGE, 8))
    plan = explain(flash_attention, q, q, q)
    rows, keys = plan.tile
    assert plan.tiles_total == -(-HUGE // rows) * -(-HUGE // keys) > 2**31


@pytest.mark.slow
def test_rows_more_than_two_to_the_31_elements_apart_in_memory():
    """Two keys, heads or sequences, or two entries of a mask, are 2^31 elements apart in 4 GB of memory."""
    rows = 2**31 // 4096 + 1
    memory = np.zeros((rows, 4096), np.float16)
    memory[[0, -1]] = np.random.default_rng(0).standard_normal((2, 4096))
    ends = mx.array(memory)[:: rows - 1]

    def far_apart(axis, *shape):
        """An array whose `axis` has two entries, 2^31 elements apart."""
        rest = shape[:axis] + shape[axis + 1 :]
        return mx.moveaxis(mx.unflatten(ends[:, : math.prod(rest)], 1, rest), 0, axis)

    q = normal(2, 2, 2, 16, dtype=mx.float16)
    for axis in range(3):
        k = far_apart(axis, 2, 2, 2, 16)
        assert memoryview(k).strides[axis] == 2**32
        check(q, k, k)
        check(k, q, q)
        check(q, q, q, mask=far_apart(axis, 2, 2, 2, 2))
    check(q, q, q, mask=far_apart(3, 2, 2, 2, 2))
