"""No time is reported before its result was right: the correctness gate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benches.cases.arrays import Inputs, to_numpy
from benches.cases.attention import Case

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

# Largest error of an output row, relative to the largest magnitude in that row of the float64 answer. Rows
# average over many keys, so an absolute bound would let a long sequence pass with anything. The float32 bound
# leaves room for a naive sum over 131072 keys (mx.fast: 2.7e-5), not for TF32 or bfloat16 products (5e-4).
TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2}
# Up to this many scores a head, every row is compared with float64; beyond it, so many rows.
ALL_ROWS_SCORES = 1024 * 1024
SAMPLED_ROWS = 96


class Gate:
    """Compares results for one case with a float64 oracle, and whole results with the first that passed."""

    def __init__(self, case: Case, inputs: Inputs) -> None:
        self.case = case
        self.rows = _rows_to_check(case)
        self._expected = oracle(case, inputs, self.rows)
        self._passed: Float32 | None = None

    @property
    def method(self) -> str:
        """What a passed gate means, for the reader of the results."""
        every = len(self.rows) == self.case.L
        rows = "every row" if every else f"{len(self.rows)} rows a head"
        peer = "" if every else ", all rows against the first that passed"
        return f"{rows} against float64{peer}; row-relative error up to {TOLERANCE[self.case.dtype]:g}"

    def error(self, result: Float32) -> float:
        """Largest row-relative error of a result [1, heads, L, D]; infinite for NaN or a wrong shape."""
        case = self.case
        if result.shape != (1, case.heads, case.L, case.D):
            return float("inf")
        error = _row_error(result[0][:, self.rows], self._expected)
        if self._passed is not None:
            error = max(error, _row_error(result[0], self._passed) / 2)  # both sides may err
        elif error <= TOLERANCE[case.dtype] and len(self.rows) < case.L:
            self._passed = result[0].copy()
        return error

    def passes(self, error: float) -> bool:
        return error <= TOLERANCE[self.case.dtype]


def oracle(case: Case, inputs: Inputs, rows: NDArray[np.int64]) -> Float64:
    """Attention of the given query rows in float64: [heads, rows, D]."""
    query = to_numpy(inputs.query)[0][:, rows].astype(np.float64)
    key, value = to_numpy(inputs.key)[0], to_numpy(inputs.value)[0]
    hidden = np.ones((len(rows), case.S), bool)
    for number, row in enumerate(rows):
        first, last = case.visible_keys(int(row))
        hidden[number, first : last + 1] = False
    out = np.empty(query.shape)
    group = case.heads // case.kv_heads
    for kv_head in range(case.kv_heads):
        k, v = key[kv_head].astype(np.float64), value[kv_head].astype(np.float64)
        for head in range(kv_head * group, (kv_head + 1) * group):
            score = query[head] @ k.T * case.D**-0.5
            score[hidden] = -np.inf
            weight = np.exp(score - score.max(axis=1, keepdims=True))
            out[head] = weight @ v / weight.sum(axis=1, keepdims=True)
    return out


def _rows_to_check(case: Case) -> NDArray[np.int64]:
    if case.L * case.S <= ALL_ROWS_SCORES:
        return np.arange(case.L)
    ends = [0, 1, case.L - 2, case.L - 1]
    return np.unique(np.concatenate([ends, np.random.default_rng(0).integers(case.L, size=SAMPLED_ROWS)]))


def _row_error(result: NDArray[np.floating], expected: NDArray[np.floating]) -> float:
    scale = np.abs(expected).max(axis=-1)
    error = np.abs(result - expected).max(axis=-1) / scale
    return float(error.max()) if np.isfinite(error).all() else float("inf")
