"""`pdm bench scheduler`: our scheduler on nano-vllm's workload, without a model: steps, prefill, preemptions.

These counts are the same on every machine. Then the time that planning a step takes on this one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from fractions import Fraction

from benches.cases.scheduler import PAGES, WATERMARK, WATERMARKS, SteadyState, WrongCounts, run
from benches.harness import machine
from benches.report.scheduler import nano_vllm_table, time_table, watermarks_table
from benches.report.tables import Record
from benches.targets.scheduler import STEP_SECONDS, misses
from tiny_llm.cli.arguments import integer
from tiny_llm.cli.output_files import output_file, write_whole
from tiny_llm_tools.benchmark.clock import interleave

RUNNING = (8, 64)  # requests


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 if an answer had a wrong length; a missed target is reported, not an error."""
    options = _parser().parse_args(argv)
    watermarks = [WATERMARK] if options.quick else WATERMARKS
    try:
        rows = count(options.pages, watermarks)
    except WrongCounts as error:
        print(f"bench scheduler: {error}", file=sys.stderr)
        return 1
    record = {
        "benchmark": "scheduler",
        **machine.describe(),
        "rows": rows,
        "times": times(options.repeats),
    }
    tables = [nano_vllm_table(record), time_table(record)]
    if not options.quick:
        tables.insert(1, watermarks_table(record))
    text = "\n\n".join(tables)
    print(text)
    if options.json:
        write_whole(options.json, json.dumps(record, indent=1) + "\n")
    if options.table:
        write_whole(options.table, text + "\n")
    return 0


def count(sizes: Iterable[int], watermarks: Iterable[Fraction]) -> list[Record]:
    """A row for each number of pages and each watermark."""
    rows = []
    for pages in sizes:
        for watermark in watermarks:
            counts = run(pages, watermark)
            rows.append(
                {
                    "pages": pages,
                    "watermark": str(watermark),
                    **asdict(counts),
                    "misses": misses(pages, counts),
                }
            )
    return rows


def times(repeats: int) -> list[Record]:
    """Processor time of a step by the number of running requests, without a forward pass.

    One thread that never waits: its processor time does not include the other programs of the machine.
    """
    calls = {str(running): SteadyState(running).step for running in RUNNING}
    samples, _ = interleave(calls, repeats=repeats, clock=time.process_time)
    return [
        {"running": running, "seconds": samples[str(running)].record(), "limit": STEP_SECONDS.get(running)}
        for running in RUNNING
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pdm bench scheduler",
        description="Runs the scheduler on nano-vllm's workload without a model; prints its counts beside\n"
        "those of nano-vllm and of a plain scheduler. docs/scheduler.md explains them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--pages", nargs="+", type=int, choices=PAGES, default=list(PAGES), metavar="N",
        help=f"sizes of the pool, of {', '.join(map(str, PAGES))} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--repeats", type=integer(1), default=11, metavar="R",
        help="samples of the time of a step; the table shows the median (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help=f"only the watermark of {WATERMARK}")
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write the record to this file")
    parser.add_argument("--table", type=output_file, metavar="FILE", help="write the tables to this file too")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
