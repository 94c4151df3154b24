"""`pdm bench packed`: packed prompts against their parts and a padded batch, and pages against dense keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby

from benches.cases import pages as page_cases
from benches.cases import varlen as varlen_cases
from benches.cases.pages import Paged
from benches.cases.varlen import Varlen
from benches.contestants import packed as contestants
from benches.contestants import pages, varlen
from benches.harness.contestant import Case as Measurable
from benches.harness.contestant import Operation
from benches.harness.measure import measure_threads
from benches.harness.row import Row
from benches.names import ALONE, DENSE, PADDED, PADDED_LENGTHS
from benches.report.latencies import bars, latencies
from benches.report.tables import origin, tally
from benches.suite import Record, Suite, by_threads
from benches.targets import packed as targets

GROUPS = {
    "varlen": "causal prompts in one packed call, against each alone and a batch with padding",
    "pages": "keys in pages of 16 to 128 tokens against dense ones: new tokens, and 128 queries after 2048",
}
COMPARED = {"varlen": (ALONE, PADDED, PADDED_LENGTHS), "pages": (DENSE,)}
CASES = {"varlen": varlen_cases.cases, "pages": page_cases.cases}


def rows_of(case: Varlen | Paged, threads: list[int], repeats: int | None = None) -> Iterator[Row]:
    """A row for each number of threads, with its targets."""
    build = _pages(case) if isinstance(case, Paged) else _varlen(case)
    work = Measurable(case.group, case.name, build)
    for row, _ in measure_threads(work, threads, repeats or case.samples, case.warmups):
        row.details = case.record()
        row.verdicts.extend(targets.judge(case, row))
        yield row


def _varlen(case: Varlen) -> Callable[[int], Operation]:
    inputs = contestants.Inputs(case)
    gate, rectangle = contestants.gate(case, inputs), varlen.Rectangle(case, inputs)

    def build(count: int) -> Operation:
        found = [contestants.tiny_llm(case, inputs, count), varlen.each_alone(case, inputs, count)]
        found += [varlen.padded(rectangle, count), varlen.padded_with_lengths(rectangle, count)]
        return Operation(case.dtype, case.flops, 0, gate, found)

    return build


def _pages(case: Paged) -> Callable[[int], Operation]:
    inputs = pages.Inputs(case)
    gate = pages.gate(case, inputs)

    def build(count: int) -> Operation:
        found = [pages.tiny_llm(case, inputs, count), pages.dense(case, inputs, count)]
        return Operation(case.dtype, case.flops, case.kv_bytes, gate, found)

    return build


def page(record: Record) -> str:
    """A table of times for each group, and how many targets were met."""
    parts = [origin(record)]
    for group, rows in groupby(record["rows"], key=lambda row: row["group"]):
        part = {**record, "rows": list(rows)}
        parts += [f"### {group}: {record['groups'][group]}", latencies(part, COMPARED[group])]
    return "\n\n".join([*parts, tally(record)])


def is_quick(case: Varlen | Paged) -> bool:
    """Whether a row is part of `--quick`: no contestant takes more than some seconds for it."""
    return isinstance(case, Paged) or varlen_cases.is_quick(case)


SUITE = Suite(
    name="packed",
    about="Measures `flash_attention_varlen` beside `flash_attention` of each prompt alone and of a padded\n"
    "batch, and `paged_attention` beside `flash_attention` on dense keys and values, in one process and in\n"
    "turn. Every result is checked before it is timed. Rows end with their targets, which are defined for\n"
    "two threads.",
    groups=GROUPS,
    cases=lambda group: CASES[group](),
    is_quick=is_quick,
    measure=by_threads(rows_of),
    plot=bars,
    table=page,
    repeats=None,
)
main = SUITE.main

if __name__ == "__main__":
    raise SystemExit(main())
