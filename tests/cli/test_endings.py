"""How commands end: without memory, without standard streams, before they have begun."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_llm.cli.endings import FAILED, REFUSED, guarded

from ..support.child import ROOT, run_python
from .terminal import PATIENCE, environment

FEW = "--num-seqs 1 --min-input-len 4 --max-input-len 4 --min-output-len 2 --max-output-len 2"


def test_too_little_memory_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> int:
        raise MemoryError

    assert guarded("program", run) == FAILED
    assert capsys.readouterr().err == "program: there is not enough memory for this\n"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("main.py --max-tokens 2 2>&-", 0),
        ("main.py --max-tokens 2 <&-", 0),
        ("main.py --max-tokens 2 >&-", 0),
        ("main.py --prompt - <&-", REFUSED),
    ],
)
def test_a_stream_that_is_closed_is_as_good_as_the_null_device(command: str, expected: int) -> None:
    result = in_shell(command)
    assert result.returncode == expected
    assert "Traceback" not in result.stderr
    assert bool(result.stdout.strip()) == (expected == 0 and ">&-" not in command.replace("2>&-", ""))


def test_what_is_printed_to_closed_streams_lands_in_no_file(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    assert in_shell(f"bench.py --model tiny {FEW} --json {file} <&- >&- 2>&-").returncode == 0
    assert json.loads(file.read_text())["benchmark"] == "model"


def in_shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'exec "$0" {command}', sys.executable],
        cwd=ROOT,
        env=environment(),
        text=True,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize(
    "start",
    [
        *(
            f'runpy.run_path("{door}", run_name="__main__")'
            for door in ("main.py", "batch-main.py", "bench.py")
        ),
        'runpy.run_module("tiny_llm", run_name="__main__")',
    ],
)
def test_an_interrupt_while_the_program_is_imported_is_silent(start: str) -> None:
    program = f"""
import os, runpy, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "tiny_llm.cli":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = []
{start}
"""
    result = run_python("-c", program)
    assert (result.returncode, result.stdout, result.stderr) == (-signal.SIGINT, "", "")
