"""`pdm bench crossover`: prompts of twelve lengths, with and without tiles."""

from __future__ import annotations

from collections.abc import Iterator

from benches.cases.packed import CROSSOVER_GROUPS, Prompts, crossover, is_quick
from benches.contestants import packed as contestants
from benches.harness.contestant import Case as Measurable
from benches.harness.contestant import Operation
from benches.harness.measure import measure_threads
from benches.harness.row import Row
from benches.names import NAIVE_TILE, Missing
from benches.report.crossover import picture, sweep
from benches.report.grid import grid
from benches.report.tables import origin
from benches.suite import Record, Suite, by_threads


def rows_of(case: Prompts, threads: list[int], repeats: int | None = None) -> Iterator[Row]:
    """A row for each number of threads; the whole score matrix takes part where one tile does not fit."""
    inputs = contestants.Inputs(case)
    gate = contestants.gate(case, inputs)

    def build(count: int) -> Operation:
        found = [contestants.tiny_llm(case, inputs, count), contestants.mx_fast(case, inputs)]
        operation = Operation(case.dtype, case.flops, 0, gate, found)
        try:
            found.append(contestants.naive_tile(case, inputs))
        except Missing as reason:
            operation.missing[NAIVE_TILE] = str(reason)
            found.append(contestants.standard(case, inputs))
        return operation

    work = Measurable(case.group, case.name, build)
    for row, _ in measure_threads(work, threads, repeats or case.samples, case.warmups):
        row.details = case.record()
        yield row


def page(record: Record) -> str:
    """The table of the sweep, and how many threadgroups a GPU would start."""
    return "\n\n".join([origin(record), sweep(record), grid(record)])


SUITE = Suite(
    name="crossover",
    about="Measures causal attention of two prompts of 16 to 1024 tokens in float16, 32 query heads and 8\n"
    "of keys, head size 128: tiny_llm, mx.fast, and one tile a prompt, or the whole score matrix where a\n"
    "prompt does not fit into a tile. Every result is checked before it is timed.",
    groups=CROSSOVER_GROUPS,
    cases=crossover,
    is_quick=is_quick,
    measure=by_threads(rows_of),
    plot=picture,
    table=page,
    repeats=None,
)
main = SUITE.main

if __name__ == "__main__":
    raise SystemExit(main())
