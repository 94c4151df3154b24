"""Seconds of a fresh process: to the first printed token of the embedded model, and of `import tiny_llm`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from benches.harness.machine import ROOT

SET_UP = Path(sys.prefix) / "tiny_llm_packages"  # written by `pdm run setup`
IMPORT = "import time; begin = time.perf_counter(); import tiny_llm; print(time.perf_counter() - begin)"


def main_command() -> tuple[str, list[str]]:
    """`pdm run main` if pdm has set up this environment, else the program that it starts."""
    pdm = Path(sys.prefix) / "bin" / "pdm"
    if SET_UP.is_file() and pdm.is_file():
        return "pdm run main", [str(pdm), "run", "main"]
    return "main.py", [sys.executable, "main.py"]


def first_token_seconds() -> float:
    """From the start of the command to the first byte of its output."""
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
    """`import tiny_llm` in a fresh interpreter, without the start of the interpreter."""
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
