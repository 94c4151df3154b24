"""`pdm bench flashtile`: attention layers of FlashTile's sizes, with their projections and without.

`pdm bench flashtile functions` and `layers` have options and results in the forms of FlashTile.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from benches.cases.flashtile import GROUPS, Case, cases, is_quick
from benches.contestants import flashtile as contestants
from benches.harness.contestant import Case as Measurable
from benches.harness.contestant import Operation
from benches.harness.forms import functions, layers
from benches.harness.measure import measure
from benches.harness.row import Row
from benches.names import MX_FAST, NAIVE
from benches.report.curves import curves
from benches.report.latencies import latencies
from benches.report.tables import origin
from benches.suite import Record, Suite, run

FORMS = {"functions": functions.main, "layers": layers.main}
MOST_DENSE_TOKENS = 2048  # all scores of 4096 tokens take 3.2 GB, several times


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 if a result of tiny_llm was wrong."""
    given = sys.argv[1:] if argv is None else list(argv)
    if given and given[0] in FORMS:
        return FORMS[given[0]](given[1:])
    return run(SUITE, given)


def rows_of(case: Case, threads: int, repeats: int) -> Iterator[Row]:
    """One row; the number of threads is that of the process."""
    inputs = contestants.Inputs(case)

    def build(_: int) -> Operation:
        dense = [] if case.length <= MOST_DENSE_TOKENS else contestants.DENSE
        found = [contestants.contestant(case, inputs, name) for name in inputs.layers if name not in dense]
        missing = dict.fromkeys(dense, f"measured to {MOST_DENSE_TOKENS} tokens only")
        return Operation(case.dtype, case.flops, 0, contestants.gate(case, inputs), found, missing=missing)

    row, _ = measure(Measurable(case.group, case.name, build), threads, repeats)
    row.details = case.record()
    yield row


def page(record: Record) -> str:
    """The table of times and memory."""
    return "\n\n".join([origin(record), latencies(record, (NAIVE, MX_FAST))])


def picture(record: Record) -> str:
    """All times over the length, in a panel for each group, type and mask."""
    return curves(
        record, lambda row: f"{row['group']}, {row['dtype']}, {'causal' if row['causal'] else 'full'}"
    )


def _rows(case: Case, options: argparse.Namespace) -> Iterator[Row]:
    return rows_of(case, options.threads[0], options.repeats)


SUITE = Suite(
    name="flashtile",
    about="Measures attention layers on 4 sequences, 12 heads of 64: FlashAttentionV2 (ours), V1, grouped\n"
    "queries, mx.fast and the whole score matrix (naive), in one process and in turn. Every result is\n"
    "checked before it is timed. `functions` or `layers` as the first argument: the command lines and\n"
    "results of FlashTile, with --help of their own.",
    groups=GROUPS,
    cases=cases,
    is_quick=is_quick,
    measure=_rows,
    plot=picture,
    table=page,
    repeats=5,
    process_for_threads=True,
)

if __name__ == "__main__":
    raise SystemExit(main())
