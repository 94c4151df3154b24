"""A contestant of a kernel benchmark: a call, and how its result is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from benches.harness.gate import Gate, Matrix, as_matrix
from benches.names import TINY_LLM


@dataclass(frozen=True, slots=True)
class Contestant:
    """`call` returns when the result is in memory; its inputs were prepared before."""

    name: str
    call: Callable[[], Any]
    result: Callable[[Any], Matrix] = as_matrix  # of what `call` returned
    isa: str | None = None
    variant: str = ""
    one_core: bool = False  # the number of threads makes no difference
    baseline: bool = True  # if the first call takes longer than ONCE_SECONDS, it remains the only sample
    flops: float | None = None  # if not those of the row
    gate: Gate | None = None  # if not that of the operation

    @property
    def label(self) -> str:
        return f"{self.name} {self.isa}" if self.isa else self.name


@dataclass(slots=True)
class Operation:
    """One piece of work with its contestants, tiny_llm first."""

    dtype: str
    flops: float
    bytes: int  # read and written once each; 0 if memory is no limit
    gate: Gate
    contestants: list[Contestant]
    repetitions: int = 1  # how often one call computes it
    missing: dict[str, str] = field(default_factory=dict)
    empty_call: Callable[[], Any] | None = None  # also timed, as a ceiling


@dataclass(frozen=True, slots=True)
class Case:
    """A row before its inputs exist; `build` makes them for a number of threads."""

    group: str
    name: str
    build: Callable[[int], Operation]
    quick: bool = True


def own(call: Callable[[], Any]) -> Contestant:
    """The kernel of tiny_llm, always with all samples."""
    return Contestant(TINY_LLM, call, baseline=False)


def evaluated(build: Callable[[], mx.array], repetitions: int = 1) -> Callable[[], mx.array]:
    """A call that builds that many results and returns when they are in memory."""

    def call() -> mx.array:
        out = [build() for _ in range(repetitions)]
        mx.eval(out)
        return out[0]

    return call
