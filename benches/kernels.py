"""`pdm bench kernels`: products and row kernels beside MLX, PyTorch and the roofline of the machine."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from benches.cases.products import dense_cases, packed_cases
from benches.cases.rows import row_cases
from benches.contestants.attention import TORCH
from benches.harness.measured import Measured, speedup
from benches.harness.operation import Case, measure
from benches.harness.row import Verdict, share
from benches.report import roofline
from benches.suite import Suite, run

GROUPS = {
    "linear": "dense weights at the layer shapes of 0.5B and 7B models: rows x inputs -> outputs",
    "packed": "quantized_matmul, groups of 64: rows x inputs -> outputs",
    "rows": "work on rows of numbers, which the memory limits",
}
CASES = {"linear": dense_cases, "packed": packed_cases, "rows": row_cases}
LINEAR_OVER_TORCH, LINEAR_SHARE = 1.1, 0.85


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 when one of our kernels gave a wrong result; a missed target is reported, not an error."""
    return run(SUITE, argv)


def judge(row: Measured) -> Iterator[Verdict]:
    """Dense products are faster than PyTorch's, or near what the machine allows: either will do."""
    if row.group == "linear":
        over_torch = speedup(row, TORCH, LINEAR_OVER_TORCH)
        of_roofline = share(row.subject(), "share of the roofline", LINEAR_SHARE)
        yield of_roofline if of_roofline.met and not over_torch.met else over_torch


def _rows(case: Case, options: argparse.Namespace) -> Iterator[Measured]:
    (threads,) = options.threads  # a process has one number of them
    row = measure(case, threads, options.repeats)
    row.verdicts.extend(judge(row))
    yield row


SUITE = Suite(
    name="kernels",
    about="Times single kernels of ours beside MLX's operations and PyTorch's, in one process and in turn,\n"
    "and for each number of threads in a process of its own. Every result is checked before it is timed.",
    groups=GROUPS,
    cases=lambda group: CASES[group](),
    is_quick=lambda case: case.quick,
    measure=_rows,
    plot=roofline.picture,
    process_for_threads=True,
)

if __name__ == "__main__":
    raise SystemExit(main())
