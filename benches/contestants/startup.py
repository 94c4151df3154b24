"""Fresh processes: how long until the embedded model prints its first token, and what an import costs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from benches.harness.machine import ROOT

SET_UP = Path(sys.prefix) / "tiny_llm_packages"  # what `pdm run setup` leaves behind
IMPORT = "import time; begin = time.perf_counter(); import tiny_llm; print(time.perf_counter() - begin)"


def main_command() -> tuple[str, list[str]]:
    """`pdm run main` where it has set up this environment, else what it runs: nothing is installed here."""
    pdm = Path(sys.prefix) / "bin" / "pdm"
    if SET_UP.is_file() and pdm.is_file():
        return "pdm run main", [str(pdm), "run", "main"]
    return "main.py", [sys.executable, "main.py"]


def first_token_seconds() -> float:
    """From the start of the command to the first byte of its answer."""
    begin = time.perf_counter()
    with subprocess.Popen(
        main_command()[1], cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        first = os.read(process.stdout.fileno(), 1)
        seconds = time.perf_counter() - begin
        process.stdout.read()
    if not first or process.returncode:
        raise RuntimeError(f"bench peers: {main_command()[0]} ended with code {process.returncode}")
    return seconds


def import_seconds() -> float:
    """`import tiny_llm` in a fresh interpreter, whose own start does not count."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT],
        cwd=ROOT,
        env=_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
