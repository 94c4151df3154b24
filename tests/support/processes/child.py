"""Python programs in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run_python(*arguments: str, path: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run this Python in the project's root, with `path` before this process's sys.path."""
    roots = [*map(str, path), *filter(None, sys.path)]
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )


def assert_tests_pass(file: str, names: str) -> None:
    """The tests of a file that `names` selects, by pytest's -k, pass in a fresh process.

    Tests of other instruction sets are left out: each would start this process again.
    """
    names = f"({names}) and not each_other_instruction_set"
    result = run_python("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", file, "-k", names)
    assert result.returncode == 0, result.stdout
