"""Random arrays, and which of their elements are compared."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from benches.harness.gate import Float64, Gate, Indices, to_numpy

# Largest row-relative error. bfloat16 keeps 8 bits of a result.
TOLERANCE = {"float32": 1e-4, "bfloat16": 1e-2}


def random_array(shape: tuple[int, ...], dtype: str, seed: int, scale: float = 1.0) -> mx.array:
    out = (mx.random.normal(shape, key=mx.random.key(seed)) * scale).astype(getattr(mx, dtype))
    mx.eval(out)
    return out


def sampled(rows: int, columns: int, most_rows: int = 16, most_columns: int = 512) -> tuple[Indices, Indices]:
    """Some of the rows and columns of a matrix, the first and the last among them."""
    return _spread(rows, most_rows), _spread(columns, most_columns)


def whole_gate(expected: Float64, tolerance: float) -> Gate:
    """Compares every element."""
    rows, columns = expected.shape
    return Gate((rows, columns), np.arange(rows), np.arange(columns), expected, tolerance)


def exact(x: mx.array) -> Float64:
    """The values in float64."""
    return to_numpy(x).astype(np.float64)


def as_torch(x: mx.array) -> Any:
    """The same memory as a tensor of PyTorch."""
    import torch

    return torch.utils.dlpack.from_dlpack(x)


def _spread(size: int, most: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, size - 1, min(size, most)).astype(np.int64))
