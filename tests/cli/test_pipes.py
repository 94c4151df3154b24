"""In pipes: plain output, closed pipes, signals, and slow imports that are avoided."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tiny_llm.cli.exit_codes import BROKEN_PIPE, INTERRUPTED
from tiny_llm.cli.loaders import LOADERS

from ..support.processes.child import ROOT, run_python
from .terminal import IMPATIENT, LONG_PROMPT, PATIENCE, environment

SLOW = next(name for name, loader in LOADERS.items() if not loader.has_cache)
STORY = "Tell me a short story about a brave fox."
SLOW_IMPORTS = ("mlx_lm", "transformers", "huggingface_hub", "numpy", "torch")


def without_progress(text: str) -> list[str]:
    """Its lines, without the progress lines that appear on a busy machine."""
    return [line for line in text.splitlines() if not line.startswith(("reading the", "preparing the"))]


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_run_of_main_is_plain_and_imports_nothing_slow() -> None:
    program = f"""
import runpy, sys
try:
    runpy.run_path("main.py", run_name="__main__")
except SystemExit as end:
    print("exit", end.code)
print("imported", [name for name in {SLOW_IMPORTS} if name in sys.modules])
"""
    result = run_python("-c", program)
    answer, code, imported = result.stdout.splitlines()
    assert "attention" in answer
    assert (code, imported) == ("exit 0", "imported []")
    assert "\x1b" not in result.stdout + result.stderr
    assert "\r" not in result.stdout + result.stderr
    assert len(without_progress(result.stderr)) == 2


def test_long_tasks_print_plain_progress_lines() -> None:
    process = start("-c", IMPATIENT, "--prompt", LONG_PROMPT, "--max-tokens", "1")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    lines = err.decode().splitlines()
    assert [line for line in lines if line.startswith("reading the prompt  ")]
    assert [line for line in lines if line.startswith("reading the prompt: done in ")]
    assert not any("[" in line or "\r" in line for line in lines)


def test_a_closed_pipe_ends_the_program_quietly() -> None:
    process = start("main.py", "--prompt", STORY)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(5)
    process.stdout.close()
    assert process.wait(PATIENCE) == BROKEN_PIPE
    assert without_progress(process.stderr.read().decode()) == []


def test_an_interrupt_is_one_line_and_a_code() -> None:
    process = start("main.py", "--loader", SLOW, "--prompt", STORY)
    assert process.stdout is not None
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, without_progress(err.decode())) == (INTERRUPTED, ["pdm run main: stopped"])


def test_an_interrupt_leaves_no_half_of_an_object() -> None:
    process = start("-c", IMPATIENT, "--json", "--prompt", LONG_PROMPT)
    assert process.stderr is not None
    while not process.stderr.readline().startswith(b"reading the prompt"):
        pass
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (INTERRUPTED, b"")
    assert err.endswith(b"program: stopped\n")
    assert b"Traceback" not in err


def test_a_conversation_from_a_pipe_answers_every_line() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tiny_llm", "chat"],
        cwd=ROOT,
        env=environment(),
        input=f"What is 7 + 5?\n\n/reset\n{'word ' * 3000}\nWhat is the opposite of hot?",
        text=True,
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    first, second = result.stdout.splitlines()
    assert "12" in first
    assert "cold" in second
    assert ">" not in result.stdout
    assert "expected fewer than the context of 2048; /reset starts a new conversation" in result.stderr


@pytest.mark.parametrize(
    ("script", "flags", "expected"),
    [
        ("batch-main.py", ["--batch-size", "0"], "pdm run batch-main: --batch-size: got '0'"),
        ("bench.py", ["--num-seqs", "0"], "pdm bench: --num-seqs: got '0'"),
        ("bench.py", ["model", "--num-seqs", "0"], "pdm bench: --num-seqs: got '0'"),
        ("bench.py", ["songs"], "pdm bench: unknown benchmark 'songs', expected model, attention"),
    ],
)
def test_every_script_runs_its_command(script: str, flags: list[str], expected: str) -> None:
    result = run_python(script, *flags)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(expected)
