"""The command line of `pdm bench NAME`: cases in, table, JSON and picture out."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import mlx.core as mx

from benches.harness import machine
from benches.harness.builds import SlowPeer, peer_builds
from benches.harness.records import WrongRecord, joined, read_record
from benches.names import TINY_LLM
from benches.report import tables
from tiny_llm.cli.arguments import integer
from tiny_llm.cli.exit_codes import INTERRUPTED
from tiny_llm.cli.output_files import output_file, svg_file, write_whole
from tiny_llm.runtime.extension import load_extension
from tiny_llm_tools.benchmark.pictures import check_plotting

Record = dict[str, Any]


class Case(Protocol):
    """A piece of work that gives one or more rows."""

    @property
    def name(self) -> str: ...


class Result(Protocol):
    """A row with measurements and verdicts."""

    missing: dict[str, str]

    def record(self) -> Record: ...


@dataclass(frozen=True, slots=True)
class Suite:
    """One benchmark: `pdm bench <name>`."""

    name: str
    about: str
    groups: Mapping[Any, str]
    cases: Callable[[Any], Iterable[Any]]  # of a group
    is_quick: Callable[[Any], bool]
    measure: Callable[[Any, argparse.Namespace], Iterable[Result]]
    plot: Callable[[Record], str] | None = None
    table: Callable[[Record], str] = tables.markdown
    repeats: int | None = 11  # None: each row has its own number
    peers: Sequence[str] = ()  # whose builds are checked and recorded
    add_arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    prepare: Callable[[argparse.Namespace], Record] = lambda options: {}  # additions to the record
    process_for_threads: bool = False  # for kernels without a `threads` argument
    threads: Sequence[int] = (1, 2)  # as far as this machine has them

    def main(self, argv: Sequence[str] | None = None) -> int:
        """The exit code: 1 if a result of tiny_llm was wrong; a missed target is reported, not an error."""
        return run(self, argv)


def by_threads(
    rows_of: Callable[..., Iterable[Result]],
) -> Callable[[Any, argparse.Namespace], Iterable[Result]]:
    """`measure` of a suite with a row for each number of threads: rows_of(case, threads, repeats)."""
    return lambda case, options: rows_of(case, options.threads, options.repeats)


def run(suite: Suite, argv: Sequence[str] | None = None) -> int:
    """As `Suite.main`."""
    parser = _parser(suite)
    options = parser.parse_args(argv)
    if options.add and not options.json:
        parser.error("--add: got no --json FILE, whose rows to keep")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # so that processes and files are cleaned up
    try:
        return _run(suite, options)
    except WrongRecord as error:
        parser.error(f"--add: {error}")
    except SlowPeer as error:
        print(f"bench {suite.name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nbench {suite.name}: stopped", file=sys.stderr)
        return INTERRUPTED


def _run(suite: Suite, options: argparse.Namespace) -> int:
    mx.set_default_device(mx.cpu)
    try:
        load_extension().cpu_isas()
        if suite.plot and options.plot:
            check_plotting()
    except RuntimeError as missing:  # the text says what to do
        print(f"bench {suite.name}: {missing}", file=sys.stderr)
        return 1
    extra = suite.prepare(options)
    found = [case for group in options.rows for case in suite.cases(group)]
    chosen = [case for case in found if suite.is_quick(case) or not options.quick]
    if options.only:
        chosen = [case for case in chosen if any(text in case.name for text in options.only)]
    if not chosen:
        print(f"bench {suite.name}: --quick or --only leaves none of these rows", file=sys.stderr)
        return 2

    record: Record = {
        "benchmark": suite.name,
        **machine.describe(),
        "builds": peer_builds(suite.peers),
        "groups": dict(suite.groups),
        **extra,
        "threads": options.threads,
        "repeats": options.repeats,
        "rows": [],
    }
    for line in tables.builds(record):
        _report(line)
    complete = _completion(suite, options, record)
    if suite.process_for_threads and len(options.threads) > 1:
        record["rows"] = _rows_of_processes(suite, options, [case.name for case in chosen])
    else:
        if suite.process_for_threads:
            os.environ["TINY_LLM_THREADS"] = str(options.threads[0])  # read at the first call of a kernel
        _measure_all(suite, options, chosen, record, complete)

    whole = complete(record)
    table = suite.table(whole)
    print(table)
    outputs = {options.table: table + "\n"}
    if suite.process_for_threads:
        outputs[options.json] = json.dumps(whole, indent=1) + "\n"
    if suite.plot:
        outputs[options.plot] = suite.plot(whole)
    for path, content in outputs.items():
        if path:
            write_whole(path, content)
    wrong = [
        c for row in record["rows"] for c in row["contestants"] if c["name"] == TINY_LLM and not c["passed"]
    ]
    return 1 if wrong else 0


def _completion(suite: Suite, options: argparse.Namespace, record: Record) -> Callable[[Record], Record]:
    """What makes the record to write from the rows of this run: with --add, rows of older runs join it."""
    old = read_record(options.json, suite.name, record["cpu"]) if options.add else None
    if old is None:
        return lambda new: new
    order = [(group, case.name) for group in suite.groups for case in suite.cases(group)]
    return lambda new: joined(old, new, order)


def _measure_all(
    suite: Suite,
    options: argparse.Namespace,
    chosen: list[Any],
    record: Record,
    complete: Callable[[Record], Record],
) -> None:
    absent: dict[str, str] = {}
    for number, case in enumerate(chosen, 1):
        _report(f"[{number}/{len(chosen)}] {case.name}")
        for row in suite.measure(case, options):
            record["rows"].append(row.record())
            _report(tables.progress(record["rows"][-1]))
            for name in row.missing.keys() - absent.keys():
                _report(f"  {name} does not take part: {row.missing[name]}")
            absent |= row.missing
            if options.json:  # after every row, for interrupted runs
                write_whole(options.json, json.dumps(complete(record), indent=1) + "\n")


def _rows_of_processes(suite: Suite, options: argparse.Namespace, names: list[str]) -> list[Record]:
    """The rows of one process for each number of threads, sorted by row."""
    rows: list[Record] = []
    with tempfile.TemporaryDirectory() as folder:
        for threads in options.threads:
            file = Path(folder, f"{threads}.json")
            command = [sys.executable, "-m", f"benches.{suite.name}", "--threads", str(threads)]
            command += ["--json", str(file), "--rows", *options.rows]
            command += ["--repeats", str(options.repeats)] if options.repeats else []
            command += ["--only", *options.only] if options.only else []
            paths = os.pathsep.join([str(machine.ROOT), *filter(None, sys.path)])
            done = subprocess.run(
                [*command, *(["--quick"] if options.quick else [])],
                env={**os.environ, "PYTHONPATH": paths},
                stdout=subprocess.DEVNULL,
                check=False,
            )
            found = json.loads(file.read_text())["rows"] if file.exists() else []
            if done.returncode not in (0, 1) or len(found) != len(names):  # 1: a result was wrong
                raise SystemExit(f"pdm bench {suite.name}: its process ended early, at {len(found)} rows")
            rows += found
    return sorted(rows, key=lambda row: (names.index(row["row"]), row["threads"]))


def _parser(suite: Suite) -> argparse.ArgumentParser:
    width = max(map(len, suite.groups))
    groups = "\n".join(f"  {name:{width}}  {what}" for name, what in suite.groups.items())
    parser = argparse.ArgumentParser(
        prog=f"pdm bench {suite.name}",
        description=f"{suite.about}\n\ngroups of rows:\n{groups}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rows", nargs="+", choices=list(suite.groups), default=list(suite.groups), metavar="GROUP",
        help="groups of rows to measure (default: all)",
    )  # fmt: skip
    suite.add_arguments(parser)
    parser.add_argument(
        "--threads", nargs="+", type=_thread_count, metavar="T",
        default=[count for count in suite.threads if count <= machine.cpus()] or [machine.cpus()],
        help=f"numbers of threads (default: {' '.join(map(str, suite.threads))})",
    )  # fmt: skip
    parser.add_argument(
        "--repeats", type=integer(1), default=suite.repeats, metavar="R",
        help="samples of every contestant; tables show the median "
        f"(default: {suite.repeats or 'that of each row'})",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="skip rows that take minutes")
    parser.add_argument(
        "--only", nargs="+", metavar="TEXT", help="measure rows whose names contain one of these texts"
    )
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write the record to this file")
    parser.add_argument(
        "--add", action="store_true",
        help="keep those rows of the file of --json that this run does not measure",
    )  # fmt: skip
    parser.add_argument("--table", type=output_file, metavar="FILE", help="write the table to this file too")
    if suite.plot:
        parser.add_argument(
            "--plot", type=svg_file, metavar="FILE.svg", help="draw the results (needs matplotlib: .[tools])"
        )
    return parser


def _thread_count(text: str) -> int:
    count = integer(1)(text)
    if count > machine.cpus():
        raise argparse.ArgumentTypeError(f"got {count}, but this process may use {machine.cpus()} cores")
    return count


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
