"""The clock of all benchmarks: contestants in turn, many rounds, and the spread of the samples."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

Clock = Callable[[], float]
T = TypeVar("T")

# Short calls are repeated until a sample lasts this long, so that the cost of the clock does not show.
SAMPLE_SECONDS = 5e-3
MAX_CALLS_PER_SAMPLE = 500
# Before a sample the contestant runs untimed for this long: other contestants have emptied the caches, and
# after a pause the system may have put two threads of a team on one core, where a spinning barrier costs a
# scheduler tick.
WARM_SECONDS = 0.02
# Calls longer than this need no such warm-up.
LONG_SECONDS = 0.1
# OpenMP threads (PyTorch) spin for up to 10 ms after a call, on a core that the next contestant needs. Every
# sample waits for that to end.
SETTLE_SECONDS = 0.02
# A baseline whose first call takes longer is not called again: that call is its only sample.
ONCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Samples:
    """Repeated measurements of one quantity, in the order taken."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def low(self) -> float:
        """The lower quartile."""
        return self.quantile(0.25)

    @property
    def high(self) -> float:
        """The upper quartile."""
        return self.quantile(0.75)

    def quantile(self, q: float) -> float:
        """The value below which a share q of the samples lies, between neighbours linearly."""
        ordered = sorted(self.values)
        place = q * (len(ordered) - 1)
        below = math.floor(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (place - below) * (ordered[above] - ordered[below])

    def record(self) -> dict[str, float | int]:
        """The summary for a results file."""
        tails = {"p10": self.quantile(0.1), "p90": self.quantile(0.9)}
        spread = {"median": self.median, "low": self.low, "high": self.high, **tails}
        return {**spread, "samples": len(self.values)}


def time_once(call: Callable[[], Any], clock: Clock = time.perf_counter) -> tuple[Any, float]:
    """The result of one call and the seconds it took."""
    begin = clock()
    result = call()
    return result, clock() - begin


def time_first(
    call: Callable[[], Any], clock: Clock = time.perf_counter, busy: Clock = time.process_time
) -> tuple[Any, float]:
    """`time_once` for a call that may remain the only sample.

    A shared machine may stop for a while, once for half a minute (benches/LOG.md, S7). A long call during
    which the process had less than half of a processor is therefore repeated once.
    """
    begin = busy()
    result, seconds = time_once(call, clock)
    if seconds > ONCE_SECONDS and busy() - begin < seconds / 2:
        return time_once(call, clock)
    return result, seconds


def turns(contestants: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
    """Every contestant once a round, every second round backwards: drift of the machine affects all alike."""
    for number in range(rounds):
        for contestant in contestants if number % 2 == 0 else reversed(contestants):
            yield number, contestant


def interleave(
    calls: Mapping[str, Callable[[], Any]],
    *,
    repeats: int,
    warmups: int = 0,
    probes: Mapping[str, Callable[[], float]] | None = None,
    clock: Clock = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[dict[str, Samples], dict[str, Samples]]:
    """Seconds per call of every contestant, and the values of every probe, over `repeats` rounds of `turns`.

    A probe times itself and returns a value: a peak, a bandwidth, the seconds of a worker process. Every call
    runs at least once before its first sample, and those shorter than LONG_SECONDS at least `warmups` times.
    """
    probes = probes or {}
    estimate = {name: _estimate(call, clock) for name, call in calls.items()}
    for name, call in calls.items():
        for _ in range(warmups if estimate[name] < LONG_SECONDS else 0):
            call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    values: dict[str, list[float]] = {name: [] for name in probes}

    def time_call(name: str) -> None:
        call, count = calls[name], _calls_per_sample(estimate[name])
        if estimate[name] < LONG_SECONDS:
            _warm(call, clock)
        begin = clock()
        for _ in range(count):
            call()
        seconds[name].append((clock() - begin) / count)

    def read_probe(name: str) -> None:
        values[name].append(probes[name]())

    actions = [(time_call, name) for name in calls] + [(read_probe, name) for name in probes]
    gc.collect()
    gc.disable()
    try:
        for _, (act, name) in turns(actions, repeats):
            sleep(SETTLE_SECONDS)
            act(name)
    finally:
        gc.enable()
    return _samples(seconds), _samples(values)


def _samples(lists: dict[str, list[float]]) -> dict[str, Samples]:
    return {name: Samples(tuple(values)) for name, values in lists.items()}


def _warm(call: Callable[[], Any], clock: Clock) -> None:
    end = clock() + WARM_SECONDS
    for _ in range(MAX_CALLS_PER_SAMPLE):
        call()
        if clock() >= end:
            break


def _estimate(call: Callable[[], Any], clock: Clock) -> float:
    _, seconds = time_once(call, clock)
    if seconds < LONG_SECONDS:
        _, seconds = time_once(call, clock)  # the first call may include starting threads and page faults
    return seconds


def _calls_per_sample(seconds: float) -> int:
    return min(MAX_CALLS_PER_SAMPLE, max(1, math.ceil(SAMPLE_SECONDS / max(seconds, 1e-9))))
