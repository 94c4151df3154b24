"""What the hardware allows: peaks and bandwidths, measured in the same rounds as the contestants."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from benches.cases.attention import SHORT_NAMES, Case
from benches.contestants.attention import extension

PROBE_SECONDS = 0.02
EMPTY_CALL, BANDWIDTH = "empty call", "bandwidth"
OTHERS = "others running"  # no ceiling, but what lowers all of them: who else wants the cores


def peak(isa: str, dtype: str, threads: int) -> Callable[[], float]:
    """Operations per second of the multiply units on registers alone."""
    measure = extension().peak
    return lambda: 1e9 * float(measure(isa, SHORT_NAMES[dtype], threads, PROBE_SECONDS))


def peak_name(isa: str) -> str:
    """The name of an instruction set's peak among the ceilings of a row."""
    return f"peak {isa}"


def bandwidth(nbytes: int, threads: int) -> Callable[[], float]:
    """Bytes per second when a buffer of that size is read again and again."""
    measure = extension().read_bandwidth
    return lambda: 1e9 * float(measure(nbytes, threads, PROBE_SECONDS))


def empty_call(case: Case, isa: str, threads: int) -> Callable[[], mx.array]:
    """The cost of calling: the same primitive, of one head, one query and one key, built and evaluated.

    It goes through every step of a real call (Python, checks, graph, MLX's scheduler, kernel, wake-up of the
    caller) and its arithmetic takes nanoseconds.
    """
    attention = extension().attention
    one = mx.ones((1, 1, 1, case.D), dtype=getattr(mx, case.dtype))
    mx.eval(one)

    def call() -> mx.array:
        out: mx.array = attention(one, one, one, isa=isa, threads=threads)[0]
        mx.eval(out)
        return out

    return call
