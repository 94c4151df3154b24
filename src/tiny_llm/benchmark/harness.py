"""The one clock of the project: contestants in turn, many rounds, and the spread of what was seen."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

Clock = Callable[[], float]

# Short calls are repeated until a sample lasts this long, so that the clock's own cost does not show.
SAMPLE_SECONDS = 5e-3
MOST_CALLS_PER_SAMPLE = 500
# Then a contestant runs untimed for this long. The others have emptied the caches, and after a rest the
# system may have put two threads of a team on one core, where a spinning barrier costs a scheduler's tick.
WARM_SECONDS = 0.02
# Longer calls than this get no such warm-up: within themselves they do not notice.
LONG_SECONDS = 0.1
# Worker threads of OpenMP (PyTorch) keep spinning for up to 10 ms after a call and would steal a core from
# whoever comes next. Every sample waits for that to end.
SETTLE_SECONDS = 0.02
# A baseline that needs longer for its first call is not called again: that is its only sample.
ONCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Samples:
    """What repeated measurements of one quantity gave, in the order taken."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def low(self) -> float:
        """The lower quartile."""
        return self._quantile(0.25)

    @property
    def high(self) -> float:
        """The upper quartile."""
        return self._quantile(0.75)

    def _quantile(self, q: float) -> float:
        ordered = sorted(self.values)
        place = q * (len(ordered) - 1)
        below = math.floor(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (place - below) * (ordered[above] - ordered[below])

    def record(self) -> dict[str, float | int]:
        """The summary that goes into a results file."""
        return {"median": self.median, "low": self.low, "high": self.high, "samples": len(self.values)}


def time_once(call: Callable[[], Any], clock: Clock = time.perf_counter) -> tuple[Any, float]:
    """The result of one call and the seconds it took."""
    begin = clock()
    result = call()
    return result, clock() - begin


def time_first(
    call: Callable[[], Any], clock: Clock = time.perf_counter, busy: Clock = time.process_time
) -> tuple[Any, float]:
    """The same of a call that may stay the only one.

    A shared machine may stand still, for half a minute once (benches/LOG.md). So a long call in which the
    process had less than half of a processor is made once more.
    """
    begin = busy()
    result, seconds = time_once(call, clock)
    if seconds > ONCE_SECONDS and busy() - begin < seconds / 2:
        return time_once(call, clock)
    return result, seconds


def interleave(
    calls: Mapping[str, Callable[[], Any]],
    *,
    repeats: int,
    probes: Mapping[str, Callable[[], float]] | None = None,
    clock: Clock = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[dict[str, Samples], dict[str, Samples]]:
    """Seconds per call of every contestant, and the values of every probe, over `repeats` rounds.

    Each round runs everybody once, every second round backwards: a machine that slows down half-way slows
    all alike. A probe is a measurement that keeps its own time (a peak, a bandwidth) and returns a value.
    Every call has been run at least once before its first sample.
    """
    probes = probes or {}
    estimate = {name: _estimate(call, clock) for name, call in calls.items()}
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

    turns = [(time_call, name) for name in calls]
    turns += [(lambda name: values[name].append(probes[name]()), name) for name in probes]
    gc.collect()
    gc.disable()
    try:
        for turn in range(repeats):
            for act, name in turns if turn % 2 == 0 else reversed(turns):
                sleep(SETTLE_SECONDS)
                act(name)
    finally:
        gc.enable()
    return _samples(seconds), _samples(values)


def _samples(lists: dict[str, list[float]]) -> dict[str, Samples]:
    return {name: Samples(tuple(values)) for name, values in lists.items()}


def _warm(call: Callable[[], Any], clock: Clock) -> None:
    end = clock() + WARM_SECONDS
    for _ in range(MOST_CALLS_PER_SAMPLE):
        call()
        if clock() >= end:
            break


def _estimate(call: Callable[[], Any], clock: Clock) -> float:
    _, seconds = time_once(call, clock)
    if seconds < LONG_SECONDS:
        _, seconds = time_once(call, clock)  # the first call may have paid for threads and pages
    return seconds


def _calls_per_sample(seconds: float) -> int:
    return min(MOST_CALLS_PER_SAMPLE, max(1, math.ceil(SAMPLE_SECONDS / max(seconds, 1e-9))))
