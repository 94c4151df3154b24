"""Chains of operations in float64, with a bound on the error of the same chain rounded after each operation.

Each operation adds the tolerance of a product and passes on the error of its inputs.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
import numpy as np

from ..tolerance import Float64, to_float64
from .quantized import RELATIVE_FLOOR, Packed

FLOAT32_ARITHMETIC = 2e-6  # relative error of an element before its last rounding
STEEPEST_SILU = 1.1  # the largest slope of x * sigmoid(x), rounded up


class Estimate(NamedTuple):
    """Exact values, and a bound on the error of each."""

    value: Float64
    error: Float64


def exactly(x: mx.array) -> Estimate:
    """The values of x, with no error."""
    return Estimate(to_float64(x), np.zeros(x.shape))


def normalised(x: mx.array, weight: mx.array, eps: float) -> Estimate:
    """RMSNorm of x (..., K) with weight (K,), rounded once."""
    exact = to_float64(x)
    value = exact / np.sqrt(np.square(exact).mean(-1, keepdims=True) + eps) * to_float64(weight)
    relative = FLOAT32_ARITHMETIC + mx.finfo(x.dtype).eps / 2
    smallest = 2.0**-24  # the smallest float16 above 0; the other types have smaller ones
    return Estimate(value, relative * np.abs(value) + smallest)


def product(x: Estimate, weights: Packed, dtype: mx.Dtype) -> Estimate:
    """x (..., K) times the transposed weights."""
    matrix = weights.dense().T
    return _rounded(x.value @ matrix, x.error @ np.abs(matrix), dtype)


def plus(a: Estimate, b: mx.array) -> Estimate:
    return _rounded(a.value + to_float64(b), a.error, b.dtype)


def gated(gate: Estimate, up: Estimate, dtype: mx.Dtype) -> Estimate:
    """silu(gate) * up, rounded once."""
    silu = gate.value / (1 + np.exp(-gate.value))
    silu_error = STEEPEST_SILU * gate.error
    error = silu_error * (np.abs(up.value) + up.error) + np.abs(silu) * up.error
    return _rounded(silu * up.value, error, dtype)


def assert_within(actual: mx.array, want: Estimate, dtype: mx.Dtype) -> None:
    """`actual` has that dtype, and each element is within its error bound."""
    assert actual.dtype == dtype
    assert actual.shape == want.value.shape
    excess = np.abs(to_float64(actual) - want.value) - want.error
    assert (excess <= 0).all(), f"error {excess.max():.3g} more than allowed"  # never true of NaN


def _rounded(value: Float64, error: Float64 | float, dtype: mx.Dtype) -> Estimate:
    return Estimate(value, error + RELATIVE_FLOOR[dtype] * np.abs(value).max(initial=0.0))
