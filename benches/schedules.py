"""`pdm bench schedules`: naive attention, V1, V2 and split-K by `explain` and by the counters of a run.

Nothing is timed. Tiles depend on the instruction set, and on nothing else of the machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from benches.cases.schedules import CASES, NAMES, SCHEDULES, Case
from benches.report.schedules import schedules_table
from benches.report.tables import Record
from tiny_llm.attention import explain
from tiny_llm.cli.output_files import output_file, write_whole
from tiny_llm.runtime.extension import load_extension

COUNTERS = ("path", "tiles_visited", "tiles_total", "splits")  # of a run, and as in Explanation


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 if a run did not do what `explain` says."""
    options = _parser().parse_args(argv)
    mx.set_default_device(mx.cpu)
    record = compare_all(CASES)
    table = schedules_table(record)
    print(table)
    if options.json:
        write_whole(options.json, json.dumps(record, indent=1) + "\n")
    return 0 if all(row["as_explained"] for row in record["rows"]) else 1


def compare_all(cases: Sequence[Case]) -> Record:
    """The record of all cases, on the CPU."""
    rows = [compare(case, attend) for case in cases for attend in SCHEDULES]
    return {"benchmark": "schedules", "isa": load_extension().cpu_isa(), "rows": rows}


def compare(case: Case, attend: Callable[..., mx.array]) -> dict[str, Any]:
    """What `explain` says of a call, and what the counters say after it."""
    function = getattr(attend, "func", attend)  # explain knows the function, not its partial application
    options = {**case.options(), **getattr(attend, "keywords", {})}
    inputs = case.inputs()
    plan = explain(function, *inputs, **options)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    out = attend(*inputs, **case.options())
    mx.eval(out)
    last = load_extension().last_run()
    counted = {name: last[name] for name in COUNTERS}
    return {
        "work": case.name,
        **case.record(),
        "schedule": NAMES[plan.schedule],
        "tile": list(plan.tile),
        **counted,
        "as_explained": counted == {name: getattr(plan, name) for name in COUNTERS},
        "workspace_bytes": plan.workspace_bytes,
        "measured_bytes": max(mx.get_peak_memory() - before - out.nbytes, 0),
        "kv_bytes": case.kv_bytes(plan),
        "intermediate_bytes": case.intermediate_bytes(plan),
        "math": plan.math,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pdm bench schedules",
        description="Compares naive attention, V1, V2 and split-K: path, tiles, splits, memory and bytes\n"
        "moved, as `explain` says and as the counters of a run say. Nothing is timed.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write the record to this file")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
