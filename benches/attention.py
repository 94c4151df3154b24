"""`pdm bench attention`: our attention beside MLX's, PyTorch's and the limits of the machine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from benches import contestants, machine, picture, report
from benches.cases import GROUPS, cases, is_quick
from benches.contestants import OURS
from benches.measure import measure
from benches.targets import judge
from tiny_llm.cli.arguments import whole
from tiny_llm.cli.files import output_file, svg_file, write_whole


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 when one of our kernels gave a wrong result; a missed target is reported, not an error."""
    options = _parser().parse_args(argv)
    mx.set_default_device(mx.cpu)
    try:
        available = list(contestants.extension().cpu_isas())
    except (ImportError, RuntimeError) as missing:  # not built: the text says what to do
        print(f"bench attention: {missing}", file=sys.stderr)
        return 1
    isas = _chosen_isas(options.isa, available)
    chosen = [case for group in options.rows for case in cases(group) if is_quick(case) or not options.quick]
    if not chosen:
        print("bench attention: --quick leaves none of these rows", file=sys.stderr)
        return 2

    record: dict[str, Any] = {
        "benchmark": "attention",
        **machine.describe(),
        "isas": isas,
        "threads": options.threads,
        "repeats": options.repeats,
        "rows": [],
    }
    absent: dict[str, str] = {}
    for number, case in enumerate(chosen, 1):
        _tell(f"[{number}/{len(chosen)}] {case.name}")
        for row in measure(case, isas, options.threads, options.repeats):
            row.verdicts.extend(judge(row))
            record["rows"].append(row.record())
            _tell(report.progress(record["rows"][-1]))
            for name in row.missing.keys() - absent.keys():
                _tell(f"  {name} does not take part: {row.missing[name]}")
            absent |= row.missing
            if options.json:  # after every row: an interrupted run keeps what it has
                write_whole(options.json, json.dumps(record, indent=1) + "\n")

    table = report.markdown(record)
    print(table)
    if options.table:
        write_whole(options.table, table + "\n")
    if options.plot:
        write_whole(options.plot, picture.shares(record))
    wrong = [c for row in record["rows"] for c in row["contestants"] if c["name"] == OURS and not c["passed"]]
    return 1 if wrong else 0


def _chosen_isas(asked: list[str] | None, available: list[str]) -> list[str]:
    """Those asked for, best first; all that the machine has when nothing is asked for."""
    unknown = [isa for isa in asked or [] if isa not in available]
    if unknown:
        raise SystemExit(
            f"bench attention: --isa: got {', '.join(unknown)}, expected some of {', '.join(available)}"
        )
    return [isa for isa in available if not asked or isa in asked]


def _parser() -> argparse.ArgumentParser:
    groups = "\n".join(f"  {name:8}{what}" for name, what in GROUPS.items())
    parser = argparse.ArgumentParser(
        prog="pdm bench attention",
        description="Times our attention beside mx.fast, the readable grouped attention and PyTorch, in one\n"
        "process and in turn. Every result is checked before it is timed. Prints a table; each row ends\n"
        "with its targets.\n"
        f"\ngroups of rows:\n{groups}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rows", nargs="+", choices=list(GROUPS), default=list(GROUPS), metavar="GROUP",
        help="measure only these groups (default: all; a full run takes about half an hour)",
    )  # fmt: skip
    parser.add_argument(
        "--isa", nargs="+", metavar="NAME",
        help="use only these instruction sets of ours, such as avx2 avx512 (default: all this machine has)",
    )  # fmt: skip
    parser.add_argument(
        "--threads", nargs="+", type=_thread_count, default=[1, 2][: machine.cpus()], metavar="T",
        help="measure with so many threads (default: 1 2; the targets are stated for 2)",
    )  # fmt: skip
    parser.add_argument(
        "--repeats", type=whole(1), default=11, metavar="R",
        help="samples of every contestant, of which the median counts (default: 11)",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="leave out the rows that take minutes")
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write all that was measured here")
    parser.add_argument("--table", type=output_file, metavar="FILE", help="write the markdown table here too")
    parser.add_argument(
        "--plot", type=svg_file, metavar="FILE.svg", help="draw the share of the peak, row by row"
    )
    return parser


def _thread_count(text: str) -> int:
    count = whole(1)(text)
    if count > machine.cpus():
        raise argparse.ArgumentTypeError(f"got {count}, but this process may use {machine.cpus()} cores")
    return count


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
