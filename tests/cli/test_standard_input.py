"""Standard input: text, in the encoding that was announced, and not without end."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tiny_llm.cli.exit_codes import REFUSED
from tiny_llm.loading.tokenizer.chat_template import MAX_TEXT_CHARS

from ..support.processes.child import ROOT
from .terminal import PATIENCE, Terminal, environment


def piped(content: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "tiny_llm", *arguments],
        cwd=ROOT,
        env=environment(PYTHONUTF8="1"),
        input=content,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["generate", "--prompt", "-"], "tiny-llm generate: --prompt: standard input: got the byte 0xff, "),
        (["chat"], "tiny-llm chat: standard input: got the byte 0xff, "),
    ],
)
def test_invalid_bytes_are_refused(arguments: list[str], sentence: str) -> None:
    ended = piped(b"What is 7 + \xff?\n", *arguments)
    assert (ended.returncode, ended.stdout) == (REFUSED, b"")
    assert ended.stderr.decode() == f"{sentence}expected text in UTF-8\n"


@pytest.mark.parametrize("flags", [(), ("--raw",)])
def test_the_line_break_of_echo_is_no_part_of_the_prompt(flags: tuple[str, ...]) -> None:
    flags += ("--json", "--max-tokens", "1")
    ended = piped(b"Once\nupon\n\n", "generate", "--prompt", "-", *flags)
    assert json.loads(ended.stdout)["prompt"] == "Once\nupon\n"


def test_an_endless_input_is_refused_and_not_read_to_its_end() -> None:
    with open("/dev/zero", "rb") as endless:
        ended = subprocess.run(
            [sys.executable, "-m", "tiny_llm", "generate", "--prompt", "-"],
            cwd=ROOT,
            env=environment(),
            stdin=endless,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    assert (ended.returncode, ended.stdout) == (REFUSED, b"")
    assert f"--prompt: got more than {MAX_TEXT_CHARS} characters".encode() in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [["generate", "--prompt", b"\xff"], ["generate", "--stop", b"\xff"], ["chat", "--system", b"\xff"],
     ["generate", "--model", b"\xff"], ["generate", "--loader", b"\xff"], ["generate", b"--\xff"],
     ["demo", "--heads", b"\xff"], [b"\xff"]],
)  # fmt: skip
def test_arguments_with_invalid_bytes_are_refused(arguments: list[str | bytes]) -> None:
    ended = piped(b"", *arguments)
    assert (ended.returncode, ended.stdout) == (REFUSED, b"")
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith(b"tiny-llm")


def test_a_typed_line_with_invalid_bytes_is_ignored() -> None:
    with Terminal("-m", "tiny_llm", "chat", PYTHONUTF8="1") as terminal:
        terminal.wait_for("> ")
        terminal.press_bytes(b"What is \xff?\n")
        terminal.wait_for("ignored a line that is not text in the encoding of this terminal")
        terminal.wait_for("> ")
        terminal.press("/exit\n")
        assert terminal.wait() == 0
