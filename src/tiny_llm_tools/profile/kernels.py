"""Time, rates and shares of the peak: of a function, of a stage of a program, of attention."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from numbers import Real
from statistics import mean, pstdev
from typing import Any, Unpack

import mlx.core as mx

from tiny_llm.attention import flash_attention
from tiny_llm.checks.types import check_function, check_size, check_text
from tiny_llm.errors import ArgumentError
from tiny_llm.ops.arguments import AttentionOptions, Mask
from tiny_llm.runtime.extension import load_extension

from ..benchmark.clock import turns
from .costs import attention_bytes, attention_flops
from .machine import measured_peaks
from .memory import MB, MemoryProfiler
from .timing import KernelTimer, timer

LENGTHS = ("q_lens", "kv_start", "kv_lens")


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """One measured function or stage. What is unknown is None; a share above 100 % is not clipped.

    latency_ms and latency_std_ms are mean and standard deviation over `num_iterations` runs; a MB is 1e6
    bytes. `speedup` is set by `compare_implementations`.
    """

    name: str
    latency_ms: float
    latency_std_ms: float
    num_iterations: int
    flops: int | None = None
    tflops: float | None = None
    compute_utilization_pct: float | None = None
    memory_bytes: int | None = None
    memory_bandwidth_tb: float | None = None
    memory_utilization_pct: float | None = None
    peak_memory_mb: float | None = None
    allocated_memory_mb: float | None = None
    speedup: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


class KernelProfiler:
    """Measures functions and stages, and keeps their `results` in order.

    A peak that is not given is unknown, and shares of it are None: `KernelProfiler.of_this_machine()`
    measures both. `peak_tflops_fp16` is the peak of the type that is measured, whatever that is.
    """

    def __init__(
        self,
        warmup: int = 10,
        iterations: int = 100,
        peak_tflops_fp16: float | None = None,
        peak_bandwidth_tb: float | None = None,
    ):
        check_size("KernelProfiler", "warmup", warmup, minimum=0)
        check_size("KernelProfiler", "iterations", iterations)
        self.peak_tflops_fp16 = _positive("peak_tflops_fp16", peak_tflops_fp16)
        self.peak_bandwidth_tb = _positive("peak_bandwidth_tb", peak_bandwidth_tb)
        self.warmup = warmup
        self.iterations = iterations
        self.results: list[ProfileResult] = []

    @classmethod
    def of_this_machine(
        cls, dtype: mx.Dtype = mx.float32, warmup: int = 10, iterations: int = 100
    ) -> KernelProfiler:
        """A profiler with the measured peaks of MLX's default device; of a GPU they are unknown."""
        peaks = measured_peaks(dtype)
        return cls(warmup, iterations, peaks.tflops, peaks.bandwidth_tb)

    def profile_function(
        self,
        fn: Callable[[], Any],
        name: str,
        flops: int | None = None,
        memory_bytes: int | None = None,
        **metadata: Any,
    ) -> ProfileResult:
        """Run `fn()` for `warmup` and `iterations` times; its outputs are evaluated in the timed region."""
        check_function("profile_function", "fn", fn)
        check_text("profile_function", "name", name)
        return self._keep(self._measure({name: fn}, flops, memory_bytes, metadata)[name])

    def compare_implementations(
        self,
        implementations: Mapping[str, Callable[[], Any]],
        flops: int | None = None,
        memory_bytes: int | None = None,
    ) -> dict[str, ProfileResult]:
        """Run all in turn; the `speedup` of each is the latency of the first divided by its own."""
        if not implementations:
            raise ArgumentError("compare_implementations", "implementations", "none", "at least one")
        for name, fn in implementations.items():
            check_function("compare_implementations", f"implementations[{name!r}]", fn)
        measured = self._measure(implementations, flops, memory_bytes, {})
        first = next(iter(measured.values())).latency_ms
        return {
            name: self._keep(replace(result, speedup=first / result.latency_ms))
            for name, result in measured.items()
        }

    def profile_attention(
        self,
        query: mx.array,
        key: mx.array,
        value: mx.array,
        scale: float | None = None,
        mask: Mask = None,
        *,
        name: str = "flash_attention",
        **options: Unpack[AttentionOptions],
    ) -> ProfileResult:
        """`flash_attention` with these arguments: also the path that ran, and its tiles.

        `metadata` has path, tiles_visited and tiles_total. Operations are counted exactly for causal
        attention and windows; with a mask array or lengths they are unknown.
        """
        check_text("profile_attention", "name", name)

        def attend() -> mx.array:
            return flash_attention(query, key, value, scale, mask, **options)

        mx.eval(query, key, value)
        mx.eval(attend())
        run = load_extension().last_run()
        metadata = {key: run[key] for key in ("path", "tiles_visited", "tiles_total")}
        flops, nbytes = _attention_work(query, key, mask, options)
        return self._keep(self._measure({name: attend}, flops, nbytes, metadata)[name])

    @contextmanager
    def profile(self, name: str, **metadata: Any) -> Iterator[KernelTimer]:
        """One run of a stage: `with profiler.profile("scores") as stage: s = stage.watch(f(x))`."""
        check_text("profile", "name", name)
        with MemoryProfiler() as memory, timer(name) as timed:
            yield timed
            memory.watch(timed.watched)
        assert timed.milliseconds is not None
        found = self._result(name, [timed.milliseconds], None, None, metadata)
        self._keep(replace(found, **_memory(memory)))

    def reset(self) -> None:
        """Forget all results."""
        self.results.clear()

    def summary(self) -> str:
        """All results as a table; "-" is unknown."""
        rows = [["name", "ms", "± ms", "TFLOP/s", "% peak", "TB/s", "% peak", "peak MB", "tiles", "speedup"]]
        rows += [_row(result) for result in self.results]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
            for row in rows
        )

    def _measure(
        self,
        functions: Mapping[str, Callable[[], Any]],
        flops: int | None,
        memory_bytes: int | None,
        metadata: dict[str, Any],
    ) -> dict[str, ProfileResult]:
        _optional_count("flops", flops)
        _optional_count("memory_bytes", memory_bytes)
        for _ in range(self.warmup):
            for fn in functions.values():
                mx.eval(fn())
        needed = {}
        for name, fn in functions.items():
            with MemoryProfiler() as memory:
                memory.watch(fn())
            needed[name] = _memory(memory)
        samples: dict[str, list[float]] = {name: [] for name in functions}
        for _, name in turns(list(functions), self.iterations):
            mx.synchronize()
            begin = time.perf_counter()
            mx.eval(functions[name]())
            mx.synchronize()
            samples[name].append((time.perf_counter() - begin) * 1e3)
        return {
            name: replace(self._result(name, times, flops, memory_bytes, metadata), **needed[name])
            for name, times in samples.items()
        }

    def _result(
        self,
        name: str,
        milliseconds: list[float],
        flops: int | None,
        memory_bytes: int | None,
        metadata: dict[str, Any],
    ) -> ProfileResult:
        latency = mean(milliseconds)
        tflops = None if flops is None else flops / latency / 1e9
        bandwidth = None if memory_bytes is None else memory_bytes / latency / 1e9
        return ProfileResult(
            name=name,
            latency_ms=latency,
            latency_std_ms=pstdev(milliseconds),
            num_iterations=len(milliseconds),
            flops=flops,
            tflops=tflops,
            compute_utilization_pct=_share(tflops, self.peak_tflops_fp16),
            memory_bytes=memory_bytes,
            memory_bandwidth_tb=bandwidth,
            memory_utilization_pct=_share(bandwidth, self.peak_bandwidth_tb),
            metadata=metadata,
        )

    def _keep(self, result: ProfileResult) -> ProfileResult:
        self.results.append(result)
        return result


def _attention_work(
    query: mx.array, key: mx.array, mask: Mask, options: AttentionOptions
) -> tuple[int | None, int]:
    """Operations, None if an array decides what is visible, and the bytes of query, key, value and output."""
    *batch, heads, length, size = query.shape
    count = 1
    for each in batch:
        count *= each
    nbytes = attention_bytes(
        count, heads, length, size, query.dtype.size, num_kv_heads=key.shape[-3], kv_len=key.shape[-2]
    )
    if isinstance(mask, mx.array) or any(options.get(name) is not None for name in LENGTHS):
        return None, nbytes
    causal = mask == "causal" or options.get("causal", False)
    window = options.get("window")
    flops = attention_flops(count, heads, length, size, kv_len=key.shape[-2], causal=causal, window=window)
    return flops, nbytes


def _memory(profiler: MemoryProfiler) -> dict[str, Any]:
    return {
        "peak_memory_mb": profiler.stats.peak_allocated_mb,
        "allocated_memory_mb": mx.get_active_memory() / MB,
    }


def _share(rate: float | None, peak: float | None) -> float | None:
    return None if rate is None or peak is None else 100 * rate / peak


def _positive(argument: str, given: float | None) -> float | None:
    if given is not None and not (isinstance(given, Real) and not isinstance(given, bool) and given > 0):
        raise ArgumentError("KernelProfiler", argument, given, "a number above 0, or None for unknown")
    return given


def _optional_count(argument: str, given: int | None) -> None:
    if given is not None:
        check_size("KernelProfiler", argument, given, minimum=0)


def _row(result: ProfileResult) -> list[str]:
    tiles = [result.metadata.get(name) for name in ("tiles_visited", "tiles_total")]
    numbers = [
        (result.latency_ms, ".3f"),
        (result.latency_std_ms, ".3f"),
        (result.tflops, ".4f"),
        (result.compute_utilization_pct, ".1f"),
        (result.memory_bandwidth_tb, ".4f"),
        (result.memory_utilization_pct, ".1f"),
        (result.peak_memory_mb, ".1f"),
    ]
    cells = ["-" if number is None else format(number, style) for number, style in numbers]
    cells.append("-" if tiles[0] is None else f"{tiles[0]}/{tiles[1]}")
    cells.append("-" if result.speedup is None else f"{result.speedup:.2f}x")
    return [result.name, *cells]
