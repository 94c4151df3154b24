"""`pdm bench decode`: one new token a sequence over pages, by tiny_llm and MLX."""

from __future__ import annotations

from collections.abc import Iterator

from benches.cases.decode import GROUPS, Case, cases, is_quick
from benches.contestants import decode as contestants
from benches.harness import ceilings
from benches.harness.contestant import Case as Measurable
from benches.harness.contestant import Operation
from benches.harness.measure import measure_threads
from benches.harness.row import Row, Verdict
from benches.names import DENSE, MX_FAST, TINY_LLM
from benches.report.latencies import bars, latencies
from benches.report.tables import origin, tally
from benches.suite import Record, Suite, by_threads
from tiny_llm.runtime.extension import load_extension

TARGET_THREADS = 2  # targets are defined for two cores
OVER_DENSE = 1.10  # of the time without pages


def rows_of(case: Case, threads: list[int], repeats: int | None = None) -> Iterator[Row]:
    """A row for each number of threads, with its target."""
    inputs = contestants.Inputs(case)
    gate = contestants.gate(case, inputs)

    def build(count: int) -> Operation:
        found = [contestants.tiny_llm(case, inputs, count), contestants.dense(case, inputs, count)]
        found += [contestants.mx_fast(case, inputs), contestants.gathered(case, inputs)]
        operation = Operation(case.dtype, case.flops, case.kv_bytes, gate, found)
        isa = str(load_extension().cpu_isa())
        operation.empty_call = ceilings.empty_call(case.dtype, case.D, isa, count)
        return operation

    work = Measurable(case.group, case.name, build)
    for row, _ in measure_threads(work, threads, repeats or case.samples, case.warmups):
        row.details = case.record()
        if row.threads == TARGET_THREADS:
            row.verdicts.append(against_dense(row))
        yield row


def against_dense(row: Row) -> Verdict:
    """The time with pages, relative to the time without."""
    own, other = row.seconds(TINY_LLM), row.seconds(DENSE)
    return Verdict("time against dense", "<=", OVER_DENSE, own / other if own and other else None, "x")


def page(record: Record) -> str:
    """The table of times and of bytes read, and how many targets were met."""
    times = latencies(record, (DENSE, MX_FAST), rates=True)
    return "\n\n".join([origin(record), times, tally(record)])


SUITE = Suite(
    name="decode",
    about="Measures attention of one new token a sequence over keys and values in shuffled pages, in\n"
    "float16: tiny_llm on pages and on dense arrays, mx.fast on dense arrays that exist before, and mx.fast\n"
    "after gathering the pages, in one process and in turn. Every row is checked before it is timed.\n"
    "Targets are defined for two threads.",
    groups=GROUPS,
    cases=cases,
    is_quick=is_quick,
    measure=by_threads(rows_of),
    plot=bars,
    table=page,
    repeats=None,
)
main = SUITE.main

if __name__ == "__main__":
    raise SystemExit(main())
