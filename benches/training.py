"""`pdm bench training`: attention with its gradient, by tiny_llm, MLX and PyTorch, and its memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benches.cases.attention import Case
from benches.cases.training import GROUPS, WORK, LayerCase, cases, is_quick
from benches.contestants import training as contestants
from benches.contestants import training_memory
from benches.harness.contestant import Case as Measurable
from benches.harness.contestant import Operation
from benches.harness.measure import measure_threads
from benches.harness.row import Row
from benches.names import MX_FAST, NO_WINDOW, PYTORCH, TINY_LLM, Missing
from benches.report.latencies import bars, latencies
from benches.report.tables import origin, tally
from benches.suite import Record, Suite, by_threads
from benches.targets import training as targets


def rows_of(case: Case | LayerCase, threads: list[int], repeats: int) -> Iterator[Row]:
    """A row for each number of threads with its targets; memory does not depend on that number."""
    if isinstance(case, LayerCase) or case.group == "memory":
        yield _memory_row(case, threads[-1])
        return
    inputs = contestants.Inputs(case)
    gate = contestants.gate(case, inputs)
    whole_gate = contestants.gate(contestants.without_mask(case), inputs) if case.window else None

    def build(count: int) -> Operation:
        found = [contestants.tiny_llm(case, inputs, count)]
        operation = Operation(case.dtype, WORK * case.flops, 0, gate, found)
        if whole_gate:
            found.append(contestants.without_window(case, inputs, count, whole_gate))
        peers = {
            MX_FAST: lambda: contestants.mx_fast(case, inputs),
            PYTORCH: lambda: contestants.pytorch(case, inputs, count),
        }
        for name, peer in peers.items():
            try:
                found.append(peer())
            except Missing as reason:
                operation.missing[name] = str(reason)
        return operation

    work = Measurable(case.group, case.name, build)
    for row, outcomes in measure_threads(work, threads, repeats):
        row.details = case.record()
        if case.window is not None:
            own = next(o for o in outcomes.values() if o.contestant.name == TINY_LLM)
            row.details["tiles"] = contestants.visited_tiles(own.contestant)
        row.verdicts.extend(targets.judge(case, row))
        yield row


def _memory_row(case: Case | LayerCase, threads: int) -> Row:
    row = Row(case.group, case.name, threads, 0, details=case.record())
    if isinstance(case, LayerCase):
        peak, half = (training_memory.of_layer(each) for each in (case, case.half()))
    else:
        peak, needed = training_memory.of_attention(case, threads)
        half, _ = training_memory.of_attention(replace(case, L=case.L // 2, S=case.S // 2), threads)
        row.verdicts.append(targets.memory(peak, needed))
    row.verdicts.append(targets.growth(peak, half))
    return row


def page(record: Record) -> str:
    """The table of times with the targets of each row, and how many were met."""
    return "\n\n".join([origin(record), latencies(record, (PYTORCH, MX_FAST, NO_WINDOW)), tally(record)])


SUITE = Suite(
    name="training",
    about="Measures attention forward and backward: tiny_llm, mx.fast and PyTorch, in one process and in\n"
    "turn. Every gradient is checked before it is timed. Rows end with their targets, which are defined for\n"
    "two threads.",
    groups=GROUPS,
    cases=cases,
    is_quick=is_quick,
    measure=by_threads(rows_of),
    plot=bars,
    table=page,
    repeats=7,
    peers=(PYTORCH,),
)
main = SUITE.main

if __name__ == "__main__":
    raise SystemExit(main())
