"""Exit codes: without memory, with closed or full standard streams, interrupted during imports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_llm import LLM
from tiny_llm.cli import COMMANDS
from tiny_llm.cli.exit_codes import FAILED, REFUSED, exit_code_of
from tiny_llm.errors import EngineFailed, StepFailed
from tiny_llm.loading import load

from ..support.processes.child import ROOT, run_python
from .terminal import IMPATIENT, LONG_PROMPT, PATIENCE, environment

FEW = "--num-seqs 1 --min-input-len 4 --max-input-len 4 --min-output-len 2 --max-output-len 2"


def test_out_of_memory_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> int:
        raise MemoryError

    assert exit_code_of("program", run) == FAILED
    assert capsys.readouterr().err == "program: out of memory\n"


def test_an_error_of_the_library_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> int:
        LLM("tiny", context=1)
        return 0

    assert exit_code_of("program", run) == REFUSED
    printed = capsys.readouterr().err
    assert printed.startswith("program: LLM: context: got 1, expected ")
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (StepFailed(RuntimeError("no kernel")), "a step failed: RuntimeError: no kernel"),
        (StepFailed(NotImplementedError("week 2, day 1")), "not implemented: week 2, day 1"),
        (EngineFailed(), "the engine stopped after a fault"),
    ],
)
def test_a_fault_of_ours_is_no_refusal(
    capsys: pytest.CaptureFixture[str], error: Exception, sentence: str
) -> None:
    def run() -> int:
        raise error

    assert exit_code_of("program", run) == FAILED
    assert capsys.readouterr().err == f"program: {sentence}\n"


def test_a_fault_in_a_step_of_a_command_prints_no_traceback(tmp_path: Path) -> None:
    program = (
        "import sys; from tiny_llm.cli import main; from tiny_llm.engine.steps import Runner\n"
        "Runner.run = lambda *_: 1 / 0\n"
        "sys.exit(main(['generate']))"
    )
    result = run_python("-c", program)
    assert result.returncode == FAILED
    assert "a step failed: ZeroDivisionError: division by zero" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_warning_of_the_library_is_one_line(
    capsys: pytest.CaptureFixture[str], embedded_copy: Path
) -> None:
    (embedded_copy / "adapters.safetensors").touch()

    def run() -> int:
        load(embedded_copy)
        return 0

    assert exit_code_of("program", run) == 0
    expected = f"program: {embedded_copy}/adapters.safetensors: a LoRA adapter is not applied; merge it "
    assert capsys.readouterr().err.startswith(expected)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("main.py --max-tokens 2 2>&-", 0),
        ("main.py --max-tokens 2 <&-", 0),
        ("main.py --prompt - <&-", REFUSED),
    ],
)
def test_a_closed_standard_input_or_error_is_as_good_as_the_null_device(command: str, expected: int) -> None:
    result = in_shell(command)
    assert result.returncode == expected
    assert "Traceback" not in result.stderr
    assert bool(result.stdout.strip()) == (expected == 0)


def test_what_is_printed_to_closed_streams_lands_in_no_file(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    assert in_shell(f"bench.py --model tiny {FEW} --json {file} <&- 2>&-").returncode == 0
    assert json.loads(file.read_text())["benchmark"] == "model"
    assert in_shell(f"bench.py --model tiny {FEW} --json {tmp_path}/b.json <&- >&- 2>&-").returncode == FAILED
    assert not (tmp_path / "b.json").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_standard_output_nothing_is_started(command: str, tmp_path: Path) -> None:
    folder = f" {tmp_path / 'dense'}" if command == "export" else ""
    result = in_shell(f"-m tiny_llm {command}{folder} >&-")
    assert result.returncode == FAILED
    assert result.stderr == f"tiny-llm {command}: standard output: is closed, so nothing can be printed\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "flags",
    ["--version", "--help", "generate --help", "generate --max-tokens 2", "generate --json --max-tokens 2",
     "demo --tokens 64", "chat --max-tokens 2"],
)  # fmt: skip
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is Linux's")
def test_a_full_disk_is_one_line_and_a_code(flags: str) -> None:
    result = in_shell(f"-m tiny_llm {flags} >/dev/full", text="Hello.\n")
    program = " ".join(["tiny-llm", *(word for word in flags.split()[:1] if not word.startswith("-"))])
    assert result.returncode == FAILED
    assert result.stderr.splitlines()[-1] == f"{program}: No space left on device"
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("generate --max-tokens 2", 0), ("--version", 0), ("info --json", 0),
     ("generate --max-tokens 0", REFUSED), ("generate --model nowhere", FAILED)],
)  # fmt: skip
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is Linux's")
def test_an_unwritable_standard_error_changes_no_code(flags: str, expected: int) -> None:
    result = in_shell(f"-m tiny_llm {flags} 2>/dev/full")
    assert result.returncode == expected
    assert bool(result.stdout.strip()) == (expected == 0)


def test_a_progress_that_cannot_be_shown_does_not_end_the_work() -> None:
    result = in_shell('-c "$1" --json --max-tokens 2 --prompt "$2" 2>/dev/full', IMPATIENT, LONG_PROMPT)
    assert result.returncode == 0
    assert json.loads(result.stdout)["generated_tokens"] == 2


def in_shell(command: str, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'exec "$0" {command}', sys.executable, *arguments],
        cwd=ROOT,
        input=text,
        env=environment(),
        text=True,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", "é 🦙"), ("ascii", r"\u00e9 \ud83e\udd99")])
def test_json_escapes_only_characters_that_the_output_lacks(
    tmp_path: Path, encoding: str, shown: str
) -> None:
    file = tmp_path / "questions.txt"
    file.write_text("é 🦙\n", encoding="utf-8")
    for flags in (
        "generate --json --max-tokens 1 --prompt 'é 🦙'",
        f"batch --json --input {file} --max-seq-len 60",
        f"chat --json --max-tokens 1 < {file}",
    ):
        out = "import sys; sys.stdout.reconfigure(encoding=sys.argv.pop(1)); import runpy; "
        command = f"-X utf8 -c \"{out}runpy.run_module('tiny_llm', run_name='__main__')\" {encoding} {flags}"
        result = in_shell(command)
        assert f'"prompt": "{shown}"' in result.stdout, result.stderr


@pytest.mark.parametrize(
    "start",
    [
        *(
            f'runpy.run_path("{script}", run_name="__main__")'
            for script in ("main.py", "batch-main.py", "bench.py")
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
