"""`pdm bench kernels`: single operations of tiny_llm, MLX and PyTorch, and the roofline of the machine."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from benches.cases.products import dense_cases, packed_cases
from benches.cases.rows import row_cases
from benches.harness.contestant import Case
from benches.harness.measure import measure
from benches.harness.row import Row, Verdict, share, speedup
from benches.names import PYTORCH
from benches.report.roofline import roofline
from benches.suite import Suite

GROUPS = {
    "linear": "dense weights at the layer shapes of 0.5B and 7B models: rows x inputs -> outputs",
    "packed": "quantized_matmul, quantization groups of 64: rows x inputs -> outputs",
    "rows": "operations on rows, which memory limits",
}
CASES = {"linear": dense_cases, "packed": packed_cases, "rows": row_cases}
LINEAR_OVER_TORCH, LINEAR_SHARE = 1.1, 0.85


def judge(row: Row) -> Iterator[Verdict]:
    """The target of a dense product: faster than PyTorch, or near the roofline."""
    if row.group == "linear":
        over_torch = speedup(row, PYTORCH, LINEAR_OVER_TORCH)
        of_roofline = share(row.subject(), "share of the roofline", LINEAR_SHARE)
        yield of_roofline if of_roofline.met and not over_torch.met else over_torch


def _rows(case: Case, options: argparse.Namespace) -> Iterator[Row]:
    (threads,) = options.threads  # of this process
    row, _ = measure(case, threads, options.repeats)
    row.verdicts.extend(judge(row))
    yield row


SUITE = Suite(
    name="kernels",
    about="Measures single kernels of tiny_llm beside MLX and PyTorch, in one process and in turn, with a\n"
    "process for each number of threads. Every result is checked before it is timed.",
    groups=GROUPS,
    cases=lambda group: CASES[group](),
    is_quick=lambda case: case.quick,
    measure=_rows,
    plot=roofline,
    process_for_threads=True,
    peers=(PYTORCH,),
)
main = SUITE.main

if __name__ == "__main__":
    raise SystemExit(main())
