"""`pdm bench attention`: our attention beside MLX's, PyTorch's and the limits of the machine."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from benches.cases.attention import GROUPS, Case, cases, is_quick
from benches.contestants import attention as contestants
from benches.harness.measure_attention import measure
from benches.harness.row import Row
from benches.report import picture
from benches.suite import Record, Suite, run
from benches.targets.attention import judge


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 when one of our kernels gave a wrong result; a missed target is reported, not an error."""
    return run(SUITE, argv)


def _rows(case: Case, options: argparse.Namespace) -> Iterator[Row]:
    for row in measure(case, _chosen_isas(options), options.threads, options.repeats):
        row.verdicts.extend(judge(row))
        yield row


def _chosen_isas(options: argparse.Namespace) -> list[str]:
    """Those asked for, best first; all that the machine has when nothing is asked for."""
    asked, available = options.isa, list(contestants.extension().cpu_isas())
    unknown = [isa for isa in asked or [] if isa not in available]
    if unknown:
        raise SystemExit(
            f"bench attention: --isa: got {', '.join(unknown)}, expected some of {', '.join(available)}"
        )
    return [isa for isa in available if not asked or isa in asked]


def _prepare(options: argparse.Namespace) -> Record:
    return {"isas": _chosen_isas(options)}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--isa", nargs="+", metavar="NAME",
        help="use only these instruction sets of ours, such as avx2 avx512 (default: all this machine has)",
    )  # fmt: skip


SUITE = Suite(
    name="attention",
    about="Times our attention beside mx.fast, the readable grouped attention and PyTorch, in one\n"
    "process and in turn. Every result is checked before it is timed. Prints a table; each row ends\n"
    "with its targets, which are stated for two threads. A full run takes about half an hour.",
    groups=GROUPS,
    cases=cases,
    is_quick=is_quick,
    measure=_rows,
    plot=picture.shares,
    add_arguments=_add_arguments,
    prepare=_prepare,
)

if __name__ == "__main__":
    raise SystemExit(main())
