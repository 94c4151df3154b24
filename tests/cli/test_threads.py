"""--threads: each command that computes takes it, and its numbers hold for the whole process."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tiny_llm.cli import COMMANDS
from tiny_llm.cli.exit_codes import REFUSED, Failure
from tiny_llm.cli.info import threads_text
from tiny_llm.runtime.extension import load_extension
from tiny_llm_tools.cli import bench_serve

from ..support.processes.child import run_python
from .conftest import Run

WITHOUT = {"export"}  # copies weights


@pytest.fixture(autouse=True)
def keep_the_threads() -> Iterator[None]:
    before = load_extension().cpu_threads()
    yield
    load_extension().set_cpu_threads(",".join(map(str, before)))


@pytest.mark.parametrize("command", [*sorted(set(COMMANDS) - WITHOUT), "bench serve"])
@pytest.mark.parametrize("given", ["0", "many", "4,", "4,2,1"])
def test_every_command_that_computes_refuses_wrong_numbers(run: Run, command: str, given: str) -> None:
    before = load_extension().cpu_threads()
    ended = run(*command.split(), "--threads", given)
    expected = f"--threads: got '{given}', expected a positive integer, or two such as 16,8: for prompts and"
    assert (ended.code, ended.out) == (REFUSED, "")
    assert expected in ended.err
    assert len(ended.err.splitlines()) == 1
    assert load_extension().cpu_threads() == before


@pytest.mark.parametrize(
    ("flags", "variable", "threads", "reason"),
    [
        (("--threads", "3,2"), "5", (3, 2), "--threads=3,2"),
        (("--threads", "4"), "wrong", (4, 4), "--threads=4"),
        ((), "5,1", (5, 1), "TINY_LLM_THREADS=5,1"),
    ],
)
def test_the_option_wins_over_the_variable_and_info_says_which(
    flags: tuple[str, ...],
    variable: str,
    threads: tuple[int, int],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TINY_LLM_THREADS", variable)
    ended = run_python("-m", "tiny_llm", "info", "--json", *flags)
    prompts, decoding = threads
    expected = {"prompts": prompts, "decoding": decoding, "reason": reason}
    assert json.loads(ended.stdout)["cpu"]["threads"] == expected, ended.stderr


def test_info_has_them_in_a_line(run: Run) -> None:
    ended = run("info", "--threads", "2")
    assert "threads           2 (--threads=2)\n" in ended.out
    assert threads_text(16, 8, "--threads=16,8") == "16 in prompts, 8 in decoding (--threads=16,8)"


def test_an_answer_is_computed_with_them(run: Run) -> None:
    question = ("--prompt", "word " * 1000, "--max-tokens", "1", "--json", "--threads", "3,1")
    assert run("generate", *question).record["generated_tokens"] == 1
    assert load_extension().last_run()["threads"] == 3


def test_bench_serve_starts_its_server_with_them(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(command: list[str]) -> None:
        raise Failure(" ".join(command))

    monkeypatch.setattr(bench_serve, "ServerProcess", refuse)
    assert "serve --model tiny --threads 3,1 --port 0" in run("bench", "serve", "--threads", "3,1").err
    assert "serve --model tiny --port 0" in run("bench", "serve").err
    ended = run("bench", "serve", "--threads", "2", "--base-url", "http://127.0.0.1:1")
    assert (ended.code, ended.out) == (REFUSED, "")
    assert "--threads: has no effect with --base-url" in ended.err
