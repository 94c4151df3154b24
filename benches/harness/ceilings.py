"""The limits of the hardware: peak and bandwidth, measured in the same rounds as the contestants."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import mlx.core as mx

from benches.harness.machine import others_running
from benches.harness.types import SHORT_NAMES
from tiny_llm.runtime.extension import load_extension
from tiny_llm_tools.benchmark.clock import Samples

PROBE_SECONDS = 0.02
EMPTY_CALL, BANDWIDTH, PEAK = "empty call", "bandwidth", "peak"
OTHERS = "others running"  # not a limit: the threads of other processes, which lower all limits


def peak(isa: str, dtype: str, threads: int) -> Callable[[], float]:
    """Operations per second of the multiply units on registers alone."""
    measure = load_extension().peak
    return lambda: 1e9 * float(measure(isa, SHORT_NAMES[dtype], threads, PROBE_SECONDS))


def peak_name(isa: str) -> str:
    """The name of an instruction set's peak among the ceilings of a row."""
    return f"{PEAK} {isa}"


def bandwidth(nbytes: int, threads: int) -> Callable[[], float]:
    """Bytes per second of plain loads from a buffer of that size, read repeatedly."""
    measure = load_extension().read_bandwidth
    return lambda: 1e9 * float(measure(nbytes, threads, PROBE_SECONDS))


def of_model(dtype: str, nbytes: int, threads: int) -> dict[str, Callable[[], float]]:
    """The probes of a row of a whole model, of which a step reads that many bytes."""
    isa = load_extension().cpu_isa()
    return {
        peak_name(isa): peak(isa, dtype, threads),
        BANDWIDTH: bandwidth(nbytes, threads),
        OTHERS: others_running,
    }


def floor(flops: float, nbytes: int, limits: Mapping[str, Samples], isa: str) -> float:
    """Seconds that the hardware alone would need for this work."""
    seconds = flops / limits[peak_name(isa)].median
    return max(seconds, nbytes / limits[BANDWIDTH].median) if nbytes else seconds


def empty_call(dtype: str, head_size: int, isa: str, threads: int) -> Callable[[], mx.array]:
    """The cost of a call: attention with one head, one query and one key, built and evaluated.

    It takes every step of a real call (Python, checks, graph, MLX's scheduler, kernel, wake-up of the
    caller), and its arithmetic takes nanoseconds.
    """
    attention = load_extension().attention
    one = mx.ones((1, 1, 1, head_size), dtype=getattr(mx, dtype))
    mx.eval(one)

    def call() -> mx.array:
        out: mx.array = attention(one, one, one, isa=isa, threads=threads)[0]
        mx.eval(out)
        return out

    return call
