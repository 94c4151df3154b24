"""float32, float16 and bfloat16, at ordinary and extreme magnitudes; other and mixed dtypes are refused."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import flash_attention

from ...support.attention.check import check, expected
from ...support.cases import DTYPE_IDS, DTYPES, qkv
from ...support.refusal import refused
from ...support.tolerance import FLOOR, assert_close


@pytest.mark.parametrize("L", [1, 33])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("scale", [None, 0.0, -0.3, 1.0, 1e-4])
def test_any_finite_scale(scale, dtype, L):
    check(*qkv(L=L, S=65, dtype=dtype), scale=scale, causal=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_scores_beyond_the_range_of_float16(dtype):
    q, k, v = qkv(L=33, S=65, E=64, dtype=dtype)
    want = check(q * 300, k * 300, v, scale=1.0)
    assert want.lse.max() > 65504


@pytest.mark.parametrize("L", [1, 33])
def test_products_of_half_types_are_added_in_float32(L):
    """A score is 2048 + 126 - 2048: in float16 the numbers between are lost."""
    terms = mx.ones(128)
    terms[0], terms[127] = 2048, -2048
    k = mx.broadcast_to(mx.where(mx.arange(65)[:, None] == 3, terms, 0), (2, 2, 65, 128)).astype(mx.float16)
    q, _, v = qkv(L=L, S=65, E=128, dtype=mx.float16)
    want = check(mx.ones_like(q), k, v, scale=0.1)
    assert np.abs(want.lse - 12.6).max() < 1e-3


@pytest.mark.parametrize("L", [1, 33])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["f32", "bf16"])
def test_scores_near_the_end_of_the_range(dtype, L):
    """1.5 * 2^127 and its negative alternate: multiplied by log2(e), they would overflow."""
    q, k, v = qkv(L=L, S=65, E=64, dtype=dtype)
    sign = mx.where(mx.arange(65) % 2 == 0, 1.0, -1.0).astype(dtype)
    want = check(mx.ones_like(q), mx.ones_like(k) * sign[:, None], v, scale=1.5 * 2**121)
    assert want.lse.min() == 1.5 * 2**127


@pytest.mark.parametrize("L", [1, 33])
@pytest.mark.parametrize("factor", [1e5, 1e7])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["f32", "bf16"])
def test_large_scores_with_a_scale_that_rounds(dtype, factor, L):
    q, k, v = qkv(L=L, S=65, E=128, dtype=dtype)
    want = check(q * factor, k * factor, v)
    assert want.lse.max() > 1e10


@pytest.mark.parametrize("L", [1, 33])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["f32", "bf16"])
def test_scores_beyond_the_range_are_not_lost(dtype, L):
    """inf - inf is NaN, not a weight of 0."""
    q, k, v = qkv(L=L, S=65, E=64, dtype=dtype)
    out, lse = flash_attention(mx.ones_like(q), mx.ones_like(k), v, scale=5.4e36, return_lse=True)
    assert mx.isnan(out).all()
    assert mx.isnan(lse).all()


@pytest.mark.parametrize("L", [1, 33])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["f32", "bf16"])
def test_scores_below_any_sentinel(dtype, L):
    """Every score lies below -1e10, yet the largest of them wins as usual."""
    q, k, v = qkv(L=L, S=65, E=64, dtype=dtype)
    want = check(mx.abs(q) * 1e6, -mx.abs(k) * 1e6, v, scale=1.0)
    assert want.lse.max() < -1e10


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_finite_masks_are_ordinary_numbers(dtype):
    """Scores are zero, so that the sums are exact."""
    q, k, v = qkv(L=33, S=65, dtype=dtype)
    q = mx.zeros_like(q)
    check(q, k, v, mask=mx.full((33, 65), -1e38))
    check(q, k, v, mask=mx.where(mx.arange(65) % 2 == 0, -1e10, -2e10))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_masks_of_the_smallest_number(dtype):
    """Other libraries use the smallest float32 in masks for -inf; here it is an ordinary number."""
    q, k, v = qkv(L=33, S=65, dtype=dtype)
    lowest = float(np.finfo(np.float32).min)
    seen = (mx.arange(65) % 2 == 0) & (mx.arange(33) > 5)[:, None]
    mask = mx.where(seen, 0.0, lowest)
    out, lse = flash_attention(q, k, v, mask=mask, return_lse=True)
    want = expected(q, k, v, mask=mask)
    assert_close(out, want.out, floor=FLOOR[dtype])
    assert_close(lse[:, :, 6:], want.lse[:, :, 6:], floor=4 * FLOOR[mx.float32])
    assert (lse[:, :, :6] < -1e38).all()
    assert mx.isfinite(lse).all()


def test_tiny_values_survive():
    q, k, v = qkv(L=33, S=65)
    assert np.abs(check(q, k, v * 1e-30).out).max() > 1e-32
    out = flash_attention(q, k, v * 1e-30)
    assert mx.allclose(out * 1e30, flash_attention(q, k, v), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [mx.float64, mx.int32, mx.uint8, mx.bool_, mx.complex64], ids=str)
def test_other_dtypes_are_refused(dtype):
    q, k, v = (x.astype(dtype) for x in qkv(L=3))
    with refused("query"):
        flash_attention(q, k, v)


@pytest.mark.parametrize(("which", "name"), [(0, "query"), (1, "key"), (2, "value")])
def test_mixed_dtypes_are_refused(which, name):
    inputs = list(qkv(L=3))
    inputs[which] = inputs[which].astype(mx.float16)
    blamed = "key" if name == "query" else name  # the error names key, which is compared with query
    with refused(blamed):
        flash_attention(*inputs)
