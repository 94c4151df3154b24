"""Each check of a soak run fails for what it is there for, and for nothing else."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .clients import Outcomes
from .report import Run, as_json, as_text, checks, growth_of
from .sources import changed_files, file_times, folders

MIB = 2**20
NAMES = ["answers", "every request", "at rest", "memory", "p99", "no error", "SIGTERM", "the program"]


def run_of(**changes: Any) -> Run:
    outcomes = Outcomes(sent=3, first_tokens=[0.1, 0.2], awaited=["a", "b"], left=["c"])
    outcomes.counts.update({"good/right": 100, "stream/right": 100, "cancel/left": 1})
    at_rest = {"num_requests_running": 0.0, "num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.0}
    run = {
        "clients": 64,
        "seconds": 10.0,
        "outcomes": outcomes,
        "memory": [(float(second), 100 * MIB + second % 2 * MIB) for second in range(10)],
        "metrics": {**at_rest, "num_preemptions_total": 0.0},
        "reported": Counter(["a", "b", "c"]),
        "errors": [],
        "exit_code": 0,
        "changed": [],
    }
    return Run(**{**run, **changes})


def failed(run: Run) -> list[str]:
    return [
        name for name in NAMES for check in checks(run) if check.name.startswith(name) and not check.passed
    ]


def with_outcomes(**changes: Any) -> Run:
    run = run_of()
    for name, value in changes.items():
        setattr(run.outcomes, name, value)
    return run


@pytest.mark.parametrize(
    ("run", "names"),
    [
        (run_of(), []),
        (with_outcomes(problems=["good: wrong"]), ["answers"]),
        (with_outcomes(awaited=["a", "lost"]), ["every request"]),
        (run_of(reported=Counter("aabc")), ["every request"]),
        (run_of(reported=Counter("abcc")), ["every request"]),
        (run_of(reported=Counter("ab")), []),  # a client that leaves at once may not be seen
        (run_of(metrics=run_of().metrics | {"kv_cache_usage_perc": 0.01}), ["at rest"]),
        (run_of(memory=[(float(s), (100 + 3 * s) * MIB) for s in range(10)]), ["memory"]),
        (with_outcomes(first_tokens=[0.1] * 98 + [10.0] * 2), ["p99"]),
        (run_of(errors=["a step failed"]), ["no error"]),
        (run_of(exit_code=1), ["SIGTERM"]),
        (run_of(changed=["engine.py"]), ["the program"]),
    ],
)
def test_a_check_fails_for_its_reason(run: Run, names: list[str]) -> None:
    assert failed(run) == names
    assert len(checks(run)) == len(NAMES)
    assert as_text(run).count("FAILED") == len(names)
    assert [check["passed"] for check in as_json(run)["checks"]].count(False) == len(names)


def test_growth_leaves_out_the_beginning() -> None:
    assert growth_of([(0.0, 0), (1.0, 500), (2.0, 900), *((float(s), 1000 + s) for s in range(3, 10))]) == 6


def test_a_file_that_is_changed_new_or_gone_is_named(tmp_path: Path) -> None:
    for name in ("same.py", "gone.so"):
        (tmp_path / name).write_text("1")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/changed.py").write_text("1")
    before = file_times([tmp_path])
    os.utime(tmp_path / "inner/changed.py", ns=(7, 7))  # clocks of file systems are coarse
    (tmp_path / "gone.so").unlink()
    (tmp_path / "new.json").write_text("1")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__/same.pyc").write_text("1")
    assert changed_files(before, file_times([tmp_path])) == ["changed.py", "gone.so", "new.json"]
    assert changed_files(before, before) == []


def test_the_program_is_the_code_the_model_and_the_native_module() -> None:
    suffixes = {file.suffix for file in file_times(folders())}
    assert {".py", ".js", ".safetensors"} <= suffixes
    assert suffixes & {".so", ".dylib"}
