"""The one tolerance: a floor, or twice the error of the dense reference in the same dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

# Largest error of a correctly rounded kernel on N(0, 1) inputs.
FLOOR = {mx.float32: 2e-6, mx.float16: 2e-3, mx.bfloat16: 1.6e-2}
# The same for gradients, relative to the largest gradient.
GRADIENT_FLOOR = {mx.float32: 5e-6, mx.float16: 4e-3, mx.bfloat16: 3e-2}
# The largest relative error of an output in its type; with float32, of the sum before it is rounded.
OUTPUT_ROUNDING = {mx.float32: 2e-6, mx.float16: 2**-11, mx.bfloat16: 2**-8}

Float64 = NDArray[np.float64]


def to_float64(x: mx.array) -> Float64:
    """The exact values of x as float64 NumPy (NumPy has no bfloat16)."""
    return np.array(x.astype(mx.float32)).astype(np.float64)


def max_error(actual: Float64, expected: Float64) -> float:
    """Largest absolute difference; infinite unless NaN and infinities are at the same places."""
    if actual.shape != expected.shape:
        return np.inf
    special = ~np.isfinite(expected)
    if not np.array_equal(actual[special], expected[special], equal_nan=True):
        return np.inf
    difference = np.abs(actual - np.where(special, 0, expected))[~special]
    if np.isnan(difference).any():
        return np.inf
    return float(difference.max(initial=0.0))


def same_bits(a: Iterable[mx.array], b: Iterable[mx.array]) -> bool:
    """Whether the arrays of both are equal, one by one."""
    return all(mx.array_equal(x, y) for x, y in zip(a, b, strict=True))


def assert_close(
    actual: mx.array,
    expected: Float64,
    *,
    floor: float,
    reference: Callable[[], mx.array] | None = None,
    what: str = "result",
) -> None:
    """Fails unless actual is within floor of expected, or within twice the error of the dense reference."""
    error = max_error(to_float64(actual), expected)
    if error <= floor:
        return
    allowed = floor
    if reference is not None:
        reference_error = max_error(to_float64(reference()), expected)
        size = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
        assert reference_error < 0.1 * size, f"{what}: the dense reference itself is wrong"
        allowed = max(floor, 2 * reference_error)
    assert error <= allowed, f"{what}: error {error:.3g}, allowed {allowed:.3g}"
