"""Python programs in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run_python(*arguments: str, path: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run this Python in the project's root; it finds what this process finds, and `path` before that."""
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
    """Run those tests of a file, by pytest's -k, in a fresh process.

    Never one for other instruction sets, whose process would start them again: -k finds the file's name, too.
    """
    names = f"({names}) and not each_other_instruction_set"
    result = run_python("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", file, "-k", names)
    assert result.returncode == 0, result.stdout
