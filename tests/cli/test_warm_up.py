"""`tiny-llm warm-up`, and what the progress bar shows while kernels are compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tiny_llm.cli.progress import COMPILING, READING, prefill_progress
from tiny_llm.cli.warm_up import STEPS, as_text, run_prompts
from tiny_llm.generation.defaults import prefill_chunk

from .conftest import Run


class Lengths:
    """Notes the lengths of the prompts that it is asked to answer; a token is a word."""

    def __init__(self, context: int) -> None:
        self.context = context
        self.prompts: list[int] = []
        self.steps: list[int | None] = []

    def count_tokens(self, prompt: str) -> int:
        return len(prompt.split())

    def generate(self, prompt: str, sampling: Any, progress: Any) -> list[str]:
        self.prompts.append(self.count_tokens(prompt))
        self.steps.append(sampling.max_tokens)
        return []


def test_it_runs_a_short_prompt_and_one_of_more_than_a_chunk() -> None:
    backend: Any = Lengths(context=8192)
    run_prompts(backend, lambda *_: None)
    short, long = backend.prompts
    assert short < 16
    assert prefill_chunk() < long < prefill_chunk() + 16
    assert backend.steps == [STEPS, STEPS]


def test_prompts_fit_into_a_small_context() -> None:
    backend: Any = Lengths(context=100)
    run_prompts(backend, lambda *_: None)
    assert 64 < max(backend.prompts) <= 100 - STEPS


def test_a_device_without_a_cache_runs_the_model_and_says_so(run: Run) -> None:
    record = run("warm-up", "--device", "cpu", "--json").record
    assert record["seconds"] > 0
    assert record["device"] == "cpu"
    assert [record[name] for name in ("compiled", "kernels", "folder")] == [None, None, None]
    first, last = run("warm-up", "--device", "cpu").out.splitlines()
    assert first.startswith("tiny, tiny_llm, ")
    assert last == "MLX keeps no compiled kernels for this device, so later processes start no sooner."


@pytest.mark.parametrize(
    ("compiled", "kernels", "line"),
    [
        (57, 60, "57 kernel modules compiled, 60 in /cache"),
        (0, 60, "0 kernel modules compiled, 60 in /cache"),
        (0, 0, "No kernel was kept: can /cache be written?"),
    ],
)
def test_the_last_line_says_what_was_compiled(compiled: int, kernels: int, line: str) -> None:
    report = {
        "model": "tiny",
        "solution": "tiny_llm",
        "loader": None,
        "flash_attention": True,
        "draft_model": None,
        "device": "gpu",
        "dtype": "bfloat16",
        "seconds": 12.34,
        "compiled": compiled,
        "kernels": kernels,
        "folder": "/cache",
    }
    first, last = as_text(report).splitlines()
    assert first.endswith(": 12.3 s")
    assert last == line


def test_an_empty_cache_shows_that_kernels_are_compiled(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []

    def note(task: str, done: int, total: int | None) -> None:
        seen.append((task, done, total))

    prefill_progress(note, tmp_path)(512, 1024)
    prefill_progress(note, None)(512, 1024)
    (tmp_path / "copy.ptx").touch()
    prefill_progress(note, tmp_path)(512, 1024)
    assert seen == [(COMPILING, 0, None), (READING, 512, 1024), (READING, 512, 1024)]
