"""Where the project lies, what its pyproject.toml says, and how to run its programs in a fresh process."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def timetable() -> list[dict[str, Any]]:
    return tomllib.loads((ROOT / "course.toml").read_text())["chapter"]


def run_python(
    *arguments: str, path: tuple[Path, ...] = (), **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run Python in the project's root with `path`, then its sources, in front of everything installed."""
    roots = [*path, ROOT / "src", ROOT / "src" / "extensions"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots))}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=options.pop("cwd", ROOT),
        env=environment,
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
        **options,
    )
