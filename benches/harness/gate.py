"""The correctness gate: a result is compared before it is timed."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Matrix = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]


class Gate:
    """Compares some elements of a result with float64, and all of it with the first result that passed.

    An error is the largest of a row, relative to the largest magnitude of that row: rows average over many
    numbers, so an absolute bound would accept anything in a long row.
    """

    def __init__(
        self, shape: tuple[int, int], rows: Indices, columns: Indices, expected: Float64, tolerance: float
    ) -> None:
        self.rows, self.tolerance = rows, tolerance
        self._shape, self._columns, self._expected = shape, columns, expected
        self._passed: Matrix | None = None

    @property
    def method(self) -> str:
        """For the reader of a record: what a passed gate means."""
        count, most = self._expected.size, f"{self.tolerance:g}"
        return f"{count} numbers against float64, all against the first that passed; error up to {most}"

    def error(self, result: Matrix) -> float:
        """The largest row-relative error; infinite for NaN or a wrong shape."""
        if result.shape != self._shape:
            return float("inf")
        error = row_error(result[np.ix_(self.rows, self._columns)], self._expected)
        if self._passed is not None:
            error = max(error, row_error(result, self._passed) / 2)  # both results have an error
        elif error <= self.tolerance:
            self._passed = result.copy()
        return error

    def absolute_error(self, result: Matrix) -> float:
        """The largest difference from float64, for the reader of a record."""
        if result.shape != self._shape:
            return float("inf")
        return float(np.abs(result[np.ix_(self.rows, self._columns)] - self._expected).max(initial=0.0))

    def passes(self, error: float) -> bool:
        return error <= self.tolerance


def row_error(result: Matrix, expected: Matrix) -> float:
    scale = np.maximum(np.abs(expected).max(axis=-1), np.finfo(np.float32).tiny)
    error = np.abs(result - expected).max(axis=-1) / scale
    return float(error.max()) if np.isfinite(error).all() else float("inf")


def as_matrix(result: Any) -> Matrix:
    """An array of MLX or a tensor of PyTorch as float32 [rows, last axis]."""
    array = to_numpy(result) if isinstance(result, mx.array) else result.float().numpy()
    matrix: Matrix = array.reshape(-1, array.shape[-1])
    return matrix


def to_numpy(x: mx.array) -> NDArray[np.float32]:
    """The exact values as float32 (NumPy has no bfloat16)."""
    return np.array(x.astype(mx.float32))
