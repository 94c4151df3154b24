"""From an operation to a row: every result is checked, the right ones are timed beside the ceilings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import mlx.core as mx

from benches.harness import ceilings
from benches.harness.contestant import Case, Contestant, Operation
from benches.harness.gate import Gate
from benches.harness.machine import others_running
from benches.harness.row import Entry, Row
from tiny_llm.runtime.extension import load_extension
from tiny_llm_tools.benchmark.clock import ONCE_SECONDS, Samples, interleave, time_first


@dataclass(frozen=True, slots=True)
class Outcome:
    """The first call of a contestant: its error and its duration."""

    contestant: Contestant
    error: float
    passed: bool
    seconds: float
    absolute_error: float
    peak_bytes: int | None  # None: memory that MLX does not count

    @property
    def once(self) -> bool:
        """Whether this call remains the only sample."""
        return self.seconds > ONCE_SECONDS and self.contestant.baseline


def measure(
    case: Case,
    threads: int,
    repeats: int,
    known: Mapping[str, Outcome] | None = None,
    warmups: int = 0,
) -> tuple[Row, dict[str, Outcome]]:
    """The row of a case, and the outcomes by label. `known` outcomes are not checked again.

    `warmups` are those of `interleave`.
    """
    operation = case.build(threads)
    row = Row(case.group, case.name, threads, operation.flops, operation.bytes, gate=operation.gate.method)
    row.missing = dict(operation.missing)
    outcomes = {
        each.label: (known or {}).get(each.label) or check(each, each.gate or operation.gate)
        for each in operation.contestants
    }
    time_row(row, operation, list(outcomes.values()), repeats, warmups)
    return row, outcomes


def measure_threads(
    case: Case, threads: Iterable[int], repeats: int, warmups: int = 0
) -> Iterator[tuple[Row, dict[str, Outcome]]]:
    """A row for each number of threads. A single sample on one core serves all of them."""
    slow: dict[str, Outcome] = {}
    for count in threads:
        row, outcomes = measure(case, count, repeats, slow, warmups)
        slow |= {name: o for name, o in outcomes.items() if o.once and o.contestant.one_core}
        yield row, outcomes


def check(contestant: Contestant, gate: Gate) -> Outcome:
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    out, seconds = time_first(contestant.call)
    peak = max(mx.get_peak_memory() - before, 0) if of_mlx(out) else None
    result = contestant.result(out)
    error = gate.error(result)
    return Outcome(contestant, error, gate.passes(error), seconds, gate.absolute_error(result), peak)


def of_mlx(out: object) -> bool:
    """Whether a result is an array of MLX, or several."""
    return all(isinstance(each, mx.array) for each in (out if isinstance(out, list | tuple) else [out]))


def time_row(row: Row, operation: Operation, outcomes: list[Outcome], repeats: int, warmups: int = 0) -> None:
    """Add the entries and the ceilings. A contestant with a wrong result is not timed."""
    isas = {o.contestant.label: o.contestant.isa or _default_isa(outcomes) for o in outcomes}
    probes: dict[str, Callable[[], float]] = {
        ceilings.peak_name(isa): ceilings.peak(isa, operation.dtype, row.threads) for isa in isas.values()
    }
    if operation.bytes:
        probes[ceilings.BANDWIDTH] = ceilings.bandwidth(operation.bytes, row.threads)
    probes[ceilings.OTHERS] = others_running
    calls = {o.contestant.label: o.contestant.call for o in outcomes if o.passed and not o.once}
    if operation.empty_call:
        calls[ceilings.EMPTY_CALL] = operation.empty_call
    seconds, row.ceilings = interleave(calls, repeats=repeats, warmups=warmups, probes=probes)
    if ceilings.EMPTY_CALL in seconds:
        row.ceilings[ceilings.EMPTY_CALL] = seconds.pop(ceilings.EMPTY_CALL)
    for outcome in outcomes:
        contestant = outcome.contestant
        of_calls = seconds.get(contestant.label) or Samples((outcome.seconds,))
        timed = Samples(tuple(value / operation.repetitions for value in of_calls.values))
        flops = operation.flops if contestant.flops is None else contestant.flops
        floor = ceilings.floor(flops, operation.bytes, row.ceilings, isas[contestant.label])
        row.entries.append(
            Entry(
                name=contestant.name,
                isa=contestant.isa,
                variant=contestant.variant,
                error=outcome.error,
                absolute_error=outcome.absolute_error,
                peak_bytes=outcome.peak_bytes,
                seconds=timed if outcome.passed else None,
                flops=flops,
                floor=floor,
            )
        )


def _default_isa(outcomes: list[Outcome]) -> str:
    """Contestants without an instruction set are compared with the peak of the best one of tiny_llm."""
    found = next((o.contestant.isa for o in outcomes if o.contestant.isa), None)
    return found or str(load_extension().cpu_isa())
