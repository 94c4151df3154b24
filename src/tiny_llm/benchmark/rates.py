"""From contestants and requests to times: one request at a time, everybody in turn."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from .backends import Contestant
from .requests import Request

# Largest difference between the scores of two contestants, by the largest score: activations are rounded.
TOLERANCE = {mx.float32: 1e-3, mx.float16: 1e-2, mx.bfloat16: 6e-2}


@dataclass(frozen=True, slots=True)
class Run:
    """One request answered by one contestant."""

    prompt_tokens: int
    output_tokens: int
    first: float  # seconds from the start to the first token
    seconds: float  # to the last one

    @property
    def prefill_rate(self) -> float:
        return self.prompt_tokens / self.first

    @property
    def decode_rate(self) -> float | None:
        """None where there is only one token."""
        return (self.output_tokens - 1) / (self.seconds - self.first) if self.output_tokens > 1 else None


def run_once(contestant: Contestant, request: Request, clock: Callable[[], float] = time.perf_counter) -> Run:
    begin = clock()
    tokens = contestant.start(request)
    next(tokens)
    first = clock() - begin
    count = 1 + sum(1 for _ in tokens)
    return Run(len(request.prompt), count, first, clock() - begin)


def measure(
    contestants: Sequence[Contestant],
    requests: Sequence[Request],
    warmup: int,
    done: Callable[[int, int], None],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[Run]]:
    """The runs of each contestant, by name and in the order of the requests, behind `warmup` untimed ones.

    Every second request goes round backwards: a machine that slows down half-way slows all alike. `done` is
    told how many runs are finished, of how many.
    """
    plan = [(False, requests[i % len(requests)]) for i in range(warmup)] + [(True, r) for r in requests]
    runs: dict[str, list[Run]] = {contestant.name: [] for contestant in contestants}
    total = len(plan) * len(contestants)
    for turn, (counts, request) in enumerate(plan):
        order = contestants if turn % 2 == 0 else contestants[::-1]
        for place, contestant in enumerate(order):
            done(turn * len(contestants) + place, total)
            run = run_once(contestant, request, clock)
            if counts:
                runs[contestant.name].append(run)
    return runs


def largest_difference(contestants: Sequence[Contestant], request: Request) -> dict[str, float]:
    """How far the scores of each contestant are from those of the first, by the largest of these."""
    expected = contestants[0].scores(request).astype(mx.float32)
    largest = mx.abs(expected).max()
    found: dict[str, Any] = {
        other.name: (mx.abs(other.scores(request).astype(mx.float32) - expected).max() / largest).item()
        for other in contestants[1:]
    }
    return found
