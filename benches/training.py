"""`pdm bench training`: attention with its gradient, by tiny_llm, MLX and PyTorch."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from benches.cases.attention import Case
from benches.cases.training import GROUPS, WORK, cases
from benches.contestants import training as contestants
from benches.harness.contestant import Case as Measurable
from benches.harness.contestant import Operation
from benches.harness.measure import measure_threads
from benches.harness.row import Row, speedup
from benches.names import MX_FAST, PYTORCH, Missing
from benches.suite import Suite, run

TARGET_THREADS = 2  # targets are defined for two cores
OVER_PYTORCH = 1.2
OVER_MX_FAST = 20.0
MOST_DENSE_TOKENS = 2048  # mx.fast keeps all scores: a gradient of 4096 tokens takes gigabytes and minutes


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 if a gradient of tiny_llm was wrong; a missed target is reported, not an error."""
    return run(SUITE, argv)


def rows_of(case: Case, threads: list[int], repeats: int) -> Iterator[Row]:
    """A row for each number of threads, with its targets."""
    inputs = contestants.Inputs(case)
    gate = contestants.gate(case, inputs)

    def build(count: int) -> Operation:
        found = [contestants.tiny_llm(case, inputs, count)]
        operation = Operation(case.dtype, WORK * case.flops, 0, gate, found)
        if case.L <= MOST_DENSE_TOKENS:
            found.append(contestants.mx_fast(case, inputs))
        else:
            operation.missing[MX_FAST] = f"measured to {MOST_DENSE_TOKENS} tokens only"
        try:
            found.append(contestants.pytorch(case, inputs, count))
        except Missing as reason:
            operation.missing[PYTORCH] = str(reason)
        return operation

    work = Measurable(case.group, case.name, build)
    for row, _ in measure_threads(work, threads, repeats):
        row.details = case.record()
        if row.threads == TARGET_THREADS:
            row.verdicts.append(speedup(row, PYTORCH, OVER_PYTORCH))
            if case.L == MOST_DENSE_TOKENS:
                row.verdicts.append(speedup(row, MX_FAST, OVER_MX_FAST))
        yield row


def is_quick(case: Case) -> bool:
    """Whether a row is part of `--quick`: no contestant takes more than some seconds for it."""
    return case.L <= 1024


def _rows(case: Case, options: argparse.Namespace) -> Iterator[Row]:
    return rows_of(case, options.threads, options.repeats)


SUITE = Suite(
    name="training",
    about="Measures attention forward and backward: tiny_llm, mx.fast and PyTorch, in one process and in\n"
    "turn. Every gradient is checked before it is timed. Rows end with their targets, which are defined for\n"
    "two threads.",
    groups=GROUPS,
    cases=cases,
    is_quick=is_quick,
    measure=_rows,
    repeats=7,
)

if __name__ == "__main__":
    raise SystemExit(main())
