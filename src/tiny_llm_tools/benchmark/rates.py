"""Timed requests: every backend answers every request, one at a time and in turn."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from .backends import BenchBackend
from .clock import Clock, turns
from .requests import BenchRequest

# Largest difference between the logits of two backends, relative to the largest logit, by activation type.
TOLERANCE = {mx.float32: 1e-3, mx.float16: 1e-2, mx.bfloat16: 6e-2}


@dataclass(frozen=True, slots=True)
class Run:
    """One request answered by one backend."""

    prompt_tokens: int
    output_tokens: int
    first: float  # seconds from the start to the first token
    seconds: float  # seconds from the start to the last token

    @property
    def prefill_rate(self) -> float:
        return self.prompt_tokens / self.first

    @property
    def decode_rate(self) -> float | None:
        """Tokens per second after the first; None for a single token."""
        return (self.output_tokens - 1) / (self.seconds - self.first) if self.output_tokens > 1 else None


def run_once(backend: BenchBackend, request: BenchRequest, clock: Clock = time.perf_counter) -> Run:
    begin = clock()
    tokens = backend.generate(request)
    next(tokens)
    first = clock() - begin
    count = 1 + sum(1 for _ in tokens)
    return Run(len(request.prompt), count, first, clock() - begin)


def measure(
    backends: Sequence[BenchBackend],
    requests: Sequence[BenchRequest],
    warmup: int,
    report: Callable[[int, int], None],
    clock: Clock = time.perf_counter,
) -> dict[str, list[Run]]:
    """The runs of each backend, by name and in the order of the requests, after `warmup` untimed requests.

    `report` is called before each run with the number of finished runs and their total.
    """
    warm = [requests[number % len(requests)] for number in range(warmup)]
    plan = [*warm, *requests]
    runs: dict[str, list[Run]] = {backend.name: [] for backend in backends}
    for done, (number, backend) in enumerate(turns(backends, len(plan))):
        report(done, len(plan) * len(backends))
        run = run_once(backend, plan[number], clock)
        if number >= warmup:
            runs[backend.name].append(run)
    return runs


def largest_difference(backends: Sequence[BenchBackend], request: BenchRequest) -> dict[str, float]:
    """Largest difference of logits from those of the first backend, relative to the largest of these."""
    logits = {each.name: each.logits(request).astype(mx.float32) for each in backends if each.logits}
    if not logits:
        return {}
    first, *others = logits
    largest = mx.abs(logits[first]).max()
    found: dict[str, Any] = {
        name: (mx.abs(logits[name] - logits[first]).max() / largest).item() for name in others
    }
    return found
