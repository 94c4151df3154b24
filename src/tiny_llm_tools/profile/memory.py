"""Real peaks of MLX's memory: of a block of code, or of a function over many runs."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import mean, pstdev
from types import TracebackType
from typing import Any, Self

import mlx.core as mx

from tiny_llm.checks.types import check_function, check_size
from tiny_llm.runtime.device import device_name, on_device

from ..benchmark.clock import Samples
from .watching import Watching

MB = 1e6
LITTLE = 1024  # bytes; the scalars of a graph that was not evaluated take fewer
LAZY = (
    "MemoryProfiler: almost nothing was allocated in the block. Arrays of MLX are lazy: outputs that are to "
    "be measured must be passed to watch() or to mx.eval()"
)


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """What a block of code needed. A MB is 1e6 bytes.

    peak_allocated_mb: most bytes in arrays at one time, those that existed before included
    peak_reserved_mb: the same, with freed memory that MLX keeps for reuse
    execution_time_ms: time from entry to the end of the evaluation
    device: cpu or gpu
    allocated_before_mb: bytes in arrays at entry
    """

    peak_allocated_mb: float
    peak_reserved_mb: float
    execution_time_ms: float
    device: str
    allocated_before_mb: float

    @property
    def increase_mb(self) -> float:
        """The peak above what was allocated at entry."""
        return self.peak_allocated_mb - self.allocated_before_mb


class MemoryProfiler(Watching):
    """`with MemoryProfiler() as profiler: out = profiler.watch(f(x))`, then `profiler.stats`.

    The device is MLX's default unless one is named. Outputs are evaluated inside the block: those given to
    `watch` when it ends, others by `mx.eval`.
    """

    def __init__(self, device: str | None = None):
        super().__init__()
        self._device = None if device is None else device_name("MemoryProfiler", device)
        self._context = ExitStack()
        self._stats: MemoryStats | None = None

    @property
    def stats(self) -> MemoryStats:
        """The figures of the last block."""
        if self._stats is None:
            raise RuntimeError("MemoryProfiler: stats: no block has ended yet")
        return self._stats

    def __enter__(self) -> Self:
        self._stats = None
        if self._device is not None:
            self._context.enter_context(on_device(self._device))
        gc.collect()
        mx.synchronize()
        mx.reset_peak_memory()
        self._before = mx.get_active_memory()
        self._begin = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._context:
            if kind is None:
                watched = self.watched
                self._evaluate()
                self._stats = self._read(time.perf_counter() - self._begin)
                if not watched and self._stats.increase_mb * MB < LITTLE:
                    warnings.warn(LAZY, RuntimeWarning, stacklevel=2)

    def _read(self, seconds: float) -> MemoryStats:
        peak = max(mx.get_peak_memory(), self._before)
        return MemoryStats(
            peak_allocated_mb=peak / MB,
            peak_reserved_mb=max(peak, mx.get_active_memory() + mx.get_cache_memory()) / MB,
            execution_time_ms=seconds * 1e3,
            device=mx.default_device().type.name,
            allocated_before_mb=self._before / MB,
        )


def profile_attention_function(
    fn: Callable[..., Any],
    *arguments: Any,
    device: str | None = None,
    num_warmup: int = 5,
    num_iterations: int = 20,
    **options: Any,
) -> dict[str, Any]:
    """Time and peak memory of `fn(*arguments, **options)`, its outputs evaluated in the timed region.

    avg, min, max, std, median, p10 and p90 of `execution_time_ms`, avg and max of `peak_allocated_mb`, and
    num_warmup, num_iterations and device.
    """
    name = "profile_attention_function"
    check_function(name, "fn", fn)
    check_size(name, "num_warmup", num_warmup, minimum=0)
    check_size(name, "num_iterations", num_iterations)

    def run() -> MemoryStats:
        with MemoryProfiler(device) as profiler:
            profiler.watch(fn(*arguments, **options))
        return profiler.stats

    mx.eval(arguments, options)
    for _ in range(num_warmup):
        run()
    runs = [run() for _ in range(num_iterations)]
    times = Samples(tuple(each.execution_time_ms for each in runs))
    peaks = [each.peak_allocated_mb for each in runs]
    return {
        "avg_execution_time_ms": mean(times.values),
        "min_execution_time_ms": min(times.values),
        "max_execution_time_ms": max(times.values),
        "std_execution_time_ms": pstdev(times.values),
        "median_execution_time_ms": times.median,
        "p10_execution_time_ms": times.quantile(0.1),
        "p90_execution_time_ms": times.quantile(0.9),
        "avg_peak_allocated_mb": mean(peaks),
        "max_peak_allocated_mb": max(peaks),
        "num_warmup": num_warmup,
        "num_iterations": num_iterations,
        "device": runs[-1].device,
    }
