"""A half-precision result is the exact one rounded once: within half a unit in the last place."""

import mlx.core as mx
import numpy as np
import pytest

from ...support.attention.check import expected
from ...support.cases import normal, qkv
from ...support.products.quantized import packed
from ...support.tolerance import FLOOR, to_float64
from ..product.run import run_quantized
from .kernels import FAST, run_clean

DIGITS = {mx.float16: 11, mx.bfloat16: 8}  # of the significand
SMALLEST = {mx.float16: -14, mx.bfloat16: -126}  # exponent of a normal number
half_types = pytest.mark.parametrize("dtype", DIGITS, ids=["f16", "bf16"])


def half_unit(exact, dtype):
    """Half the distance between neighbouring numbers of that type, at each exact value."""
    exponent = np.floor(np.log2(np.maximum(np.abs(exact), 2.0 ** SMALLEST[dtype])))
    return 0.5 * 2.0 ** (exponent - DIGITS[dtype] + 1)


def assert_rounded_once(actual, exact, dtype, error):
    """`error` is the allowance for float32 sums."""
    assert actual.dtype == dtype
    distance = np.abs(to_float64(actual) - exact)
    excess = (distance - error) / half_unit(exact, dtype)
    assert excess.max() <= 1, f"{excess.max():.3f} half units"
    assert np.abs(distance / half_unit(exact, dtype)).max() > 0.9, "no result lies between two numbers"


@half_types
@pytest.mark.parametrize("kernel", FAST)
@pytest.mark.parametrize("E", [64, 72])
def test_attention(kernel, E, dtype):
    """Neither the weights nor the parts of several splits are rounded."""
    inputs = qkv(batch=(2,), heads=4, L=8, S=100, E=E, dtype=dtype)
    out, _ = run_clean(kernel, *inputs, causal=True)
    exact = expected(*inputs, causal=True).out
    assert_rounded_once(out, exact, dtype, FLOOR[mx.float32])


@half_types
@pytest.mark.parametrize("kernel", FAST)
def test_nearly_equal_weights_of_many_keys_are_not_rounded(kernel, dtype):
    """300 weights of about 1 / 300 on values that almost cancel: with rounded weights they would not."""
    query, key, _ = qkv(batch=(1,), heads=2, kv_heads=1, L=4, S=300, E=64, dtype=dtype)
    sign = mx.where(mx.arange(300) % 2 == 0, 1.0, -1.0)[:, None]
    value = (mx.broadcast_to(8 * sign, (1, 1, 300, 64)) + normal(1, 1, 300, 64)).astype(dtype)
    out, lse = run_clean(kernel, query, key, value, scale=0.01)
    exact = expected(query, key, value, scale=0.01)
    assert_rounded_once(out, exact.out, dtype, 8 * FLOOR[mx.float32])
    assert np.abs(to_float64(lse) - exact.lse).max() < 1e-5


@half_types
@pytest.mark.parametrize(("bits", "group_size"), [(4, 64), (8, 32)])
@pytest.mark.parametrize("M", [1, 4, 33], ids=["one row", "few rows", "many rows"])
def test_the_quantized_product(M, bits, group_size, dtype):
    """The unpacked weights are not rounded to the type."""
    weights = packed(37, 4 * group_size, bits=bits, group_size=group_size, dtype=dtype)
    a = normal(M, 4 * group_size, dtype=dtype)
    out, reports = run_quantized(a, weights)
    assert reports == []
    dense = weights.dense()
    exact = to_float64(a) @ dense.T
    sums = np.abs(to_float64(a)) @ np.abs(dense).T
    assert_rounded_once(out, exact, dtype, 8 * np.finfo(np.float32).eps * sums)
