"""`pdm bench prefill`: prompts of MinivLLM's sizes by tiny_llm, MLX, the whole score matrix and one tile."""

from __future__ import annotations

from collections.abc import Iterator

from benches.cases.packed import PREFILL_GROUPS, Prompts, is_quick, prefill
from benches.contestants import packed as contestants
from benches.harness.contestant import Case as Measurable
from benches.harness.contestant import Operation
from benches.harness.measure import measure_threads
from benches.harness.row import Row
from benches.harness.types import ITEM_BYTES
from benches.names import NAIVE_TILE, Missing
from benches.report.grid import grid
from benches.report.latencies import bars, latencies
from benches.report.tables import origin, table
from benches.suite import Record, Suite, by_threads


def rows_of(case: Prompts, threads: list[int], repeats: int | None = None) -> Iterator[Row]:
    """A row for each number of threads."""
    inputs = contestants.Inputs(case)
    gate = contestants.gate(case, inputs)

    def build(count: int) -> Operation:
        found = [contestants.tiny_llm(case, inputs, count), contestants.mx_fast(case, inputs)]
        found.append(contestants.standard(case, inputs))
        operation = Operation(case.dtype, case.flops, 0, gate, found)
        try:
            found.append(contestants.naive_tile(case, inputs))
        except Missing as reason:
            operation.missing[NAIVE_TILE] = str(reason)
        return operation

    work = Measurable(case.group, case.name, build)
    for row, _ in measure_threads(work, threads, repeats or case.samples, case.warmups):
        row.details = case.record()
        yield row


def page(record: Record) -> str:
    """The tables of times and of the size of the work, and how many threadgroups a GPU would start."""
    return "\n\n".join([origin(record), latencies(record), work(record), grid(record)])


def work(record: Record) -> str:
    """Operations of the two products over the visible keys, and the bytes of all scores in the type."""
    rows = {row["row"]: row for row in record["rows"]}
    body = []
    for name, row in rows.items():
        scores = row["count"] * row["heads"] * row["length"] ** 2 * ITEM_BYTES[row["dtype"]]
        body.append([name, f"{row['flops'] / 1e9:.3g}", f"{scores / 1e6:.3g}"])
    return table(["config", "GFLOP", "one score tensor, MB"], body)


SUITE = Suite(
    name="prefill",
    about="Measures causal attention of packed prompts in float16, 32 query heads and 8 of keys, head size\n"
    "128: tiny_llm, mx.fast, the whole score matrix (standard) and one tile a prompt (naive tile), in one\n"
    "process and in turn. Every result is checked before it is timed.",
    groups=PREFILL_GROUPS,
    cases=prefill,
    is_quick=is_quick,
    measure=by_threads(rows_of),
    plot=bars,
    table=page,
    repeats=None,
)
main = SUITE.main

if __name__ == "__main__":
    raise SystemExit(main())
