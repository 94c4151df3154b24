"""One operation, computed by several contestants on the same inputs: first checked, then timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from benches.cases.arrays import to_numpy
from benches.contestants.attention import OURS, extension
from benches.harness import ceilings
from benches.harness.machine import others_running
from benches.harness.measured import Measured
from benches.harness.row import Entry
from tiny_llm.benchmark.harness import ONCE_SECONDS, Samples, interleave, time_first

Float64 = NDArray[np.float64]
Matrix = NDArray[np.floating]
# Largest error of a row, by its largest magnitude in float64. bfloat16 keeps 8 bits of a result.
TOLERANCE = {"float32": 1e-4, "bfloat16": 1e-2}


@dataclass(slots=True)
class Operation:
    """The calls of everybody, ours first, and what is right: the rows and columns `sample` of the result."""

    dtype: str
    flops: float
    bytes: int  # read and written once each
    calls: dict[str, Callable[[], Any]]
    sample: tuple[NDArray[np.int64], NDArray[np.int64]]
    expected: Float64
    tolerance: float = 0.0  # of dtype where it is 0
    at_once: int = 1  # how often a call does it
    missing: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tolerance = self.tolerance or TOLERANCE[self.dtype]


@dataclass(frozen=True, slots=True)
class Case:
    """A row before anything of it exists; `build` makes the inputs for a number of threads."""

    group: str
    name: str
    build: Callable[[int], Operation]
    quick: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    error: float
    passed: bool
    seconds: float


def measure(case: Case, threads: int, repeats: int) -> Measured:
    """The row of one case; who is wrong is not timed."""
    operation = case.build(threads)
    row = Measured(case.group, case.name, threads, operation.flops, operation.bytes)
    row.missing = dict(operation.missing)
    row.gate = f"{operation.expected.size} numbers against float64, all against the first that passed"
    outcomes = dict(_gate(operation))
    isa = extension().cpu_isa()
    peak = ceilings.peak_name(isa)
    calls = {
        name: operation.calls[name]
        for name, outcome in outcomes.items()
        if outcome.passed and (name == OURS or outcome.seconds <= ONCE_SECONDS)
    }
    probes = {
        peak: ceilings.peak(isa, operation.dtype, threads),
        ceilings.BANDWIDTH: ceilings.bandwidth(operation.bytes, threads),
        ceilings.OTHERS: others_running,
    }
    of_calls, row.ceilings = interleave(calls, repeats=repeats, probes=probes)
    seconds = {
        name: Samples(tuple(value / operation.at_once for value in samples.values))
        for name, samples in of_calls.items()
    }
    floor = max(
        operation.flops / row.ceilings[peak].median, operation.bytes / row.ceilings[ceilings.BANDWIDTH].median
    )
    for name, outcome in outcomes.items():
        timed = seconds.get(name) or Samples((outcome.seconds / operation.at_once,))
        row.entries.append(
            Entry(
                name=name,
                isa=None,
                variant="",
                error=outcome.error,
                seconds=timed if outcome.passed else None,
                flops=operation.flops,
                floor=floor,
            )
        )
    return row


def _gate(operation: Operation) -> Iterator[tuple[str, Outcome]]:
    passed: Matrix | None = None
    for name, call in operation.calls.items():
        out, seconds = time_first(call)
        result = as_matrix(out)
        error = _error(result[np.ix_(*operation.sample)], operation.expected)
        if passed is not None:
            error = max(error, _error(result, passed) / 2)  # both sides may err
        right = error <= operation.tolerance
        if right and passed is None:
            passed = result
        yield name, Outcome(error, right, seconds)


def evaluated(build: Callable[[], mx.array], at_once: int = 1) -> Callable[[], mx.array]:
    """A call that returns when so many results are in memory."""

    def call() -> mx.array:
        out = [build() for _ in range(at_once)]
        mx.eval(out)
        return out[0]

    return call


def as_matrix(out: Any) -> Matrix:
    """Rows are what the last axis of a result holds."""
    array = to_numpy(out) if isinstance(out, mx.array) else out.float().numpy()
    matrix: Matrix = array.reshape(-1, array.shape[-1])
    return matrix


def as_torch(x: mx.array) -> Any:
    """The very array, as PyTorch sees it."""
    import torch

    return torch.utils.dlpack.from_dlpack(x)


def random_array(shape: tuple[int, ...], dtype: str, seed: int, scale: float = 1.0) -> mx.array:
    numbers = mx.random.normal(shape, key=mx.random.key(seed)) * scale
    out = numbers.astype(getattr(mx, dtype))
    mx.eval(out)
    return out


def sampled(rows: int, columns: int, most_rows: int = 16, most_columns: int = 512) -> tuple[Any, Any]:
    """Some of the rows and columns of a result, the first and the last among them."""
    return tuple(  # type: ignore[return-value]
        np.unique(np.linspace(0, size - 1, min(size, most)).astype(np.int64))
        for size, most in ((rows, most_rows), (columns, most_columns))
    )


def exact(x: mx.array) -> Float64:
    """The values in float64."""
    return to_numpy(x).astype(np.float64)


def _error(result: Matrix, expected: Matrix) -> float:
    if result.shape != expected.shape:
        return float("inf")
    scale = np.maximum(np.abs(expected).max(axis=-1), np.finfo(np.float32).tiny)
    error = np.abs(result - expected).max(axis=-1) / scale
    return float(error.max()) if np.isfinite(error).all() else float("inf")
