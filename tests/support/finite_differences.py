"""Gradients of the oracle by central differences in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


def gradient(loss: Callable[..., float], *inputs: Float64, step: float = 1e-5) -> list[Float64]:
    """d loss / d input, for each input, one element at a time."""
    results = []
    for which, x in enumerate(inputs):
        grad = np.zeros_like(x)
        for i in np.ndindex(x.shape):
            values = []
            for sign in (1, -1):
                moved = x.copy()
                moved[i] += sign * step
                values.append(loss(*inputs[:which], moved, *inputs[which + 1 :]))
            grad[i] = (values[0] - values[1]) / (2 * step)
        results.append(grad)
    return results
