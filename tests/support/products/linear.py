"""The dense product in float64, and inputs for it."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from ..cases import normal
from ..tolerance import Float64, to_float64
from .quantized import RELATIVE_FLOOR


def expected(x: mx.array, w: mx.array, bias: mx.array | None = None) -> Float64:
    """x times the transposed w, plus bias."""
    product = to_float64(x) @ to_float64(w).T
    return product if bias is None else product + to_float64(bias)


def assert_product(actual: mx.array, x: mx.array, w: mx.array, bias: mx.array | None = None) -> None:
    """`actual` is the product in the dtype of x."""
    assert actual.dtype == x.dtype
    assert actual.shape == (x.shape[0], w.shape[0])
    assert_near(actual, expected(x, w, bias))


def assert_near(actual: mx.array, want: Float64) -> None:
    """Within the error of sums in float32 that are rounded once to the dtype of `actual`."""
    error = np.abs(to_float64(actual) - want).max(initial=0.0)
    allowed = RELATIVE_FLOOR[actual.dtype] * np.abs(want).max(initial=0.0)
    assert error <= allowed, f"error {error:.3g}, allowed {allowed:.3g}"  # never true of NaN


def inputs(M: int, N: int, K: int, dtype: mx.Dtype = mx.float32) -> tuple[mx.array, mx.array, mx.array]:
    """Random x (M, K), w (N, K) and bias (N,)."""
    return normal(M, K, dtype=dtype), normal(N, K, dtype=dtype, seed=1), normal(N, dtype=dtype, seed=2)
