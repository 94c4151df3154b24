"""`--raw`: a text is continued as it is, with and without a chat template in the model's folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tiny_llm import LLM
from tiny_llm.cli.exit_codes import REFUSED

from ..loading.folders import write_llama
from .conftest import Run

STORY = "Once upon a time"
SHORT = ("--max-tokens", "6")


@pytest.fixture
def without_template(embedded_copy: Path) -> str:
    settings = embedded_copy / "tokenizer_config.json"
    content = json.loads(settings.read_text())
    del content["chat_template"]
    settings.write_text(json.dumps(content))
    return str(embedded_copy)


def test_a_text_is_continued_as_it_is(run: Run) -> None:
    record = run("generate", "--raw", "--json", "--prompt", STORY, *SHORT).record
    result = LLM("tiny").generate(STORY, max_tokens=6)
    assert record["text"] == result.text
    assert record["prompt_tokens"] == result.statistics.prompt_tokens


@pytest.mark.parametrize("flags", [(), ("--solution", "mlx")])
def test_a_model_without_a_template_continues_text(
    run: Run, without_template: str, flags: tuple[str, ...]
) -> None:
    exact = ("generate", "--raw", "--json", "--prompt", STORY, "--dtype", "float32", *SHORT, *flags)
    assert run(*exact, "--model", without_template).record["text"] == run(*exact).record["text"]


@pytest.mark.parametrize("command", ["generate", "batch", "chat"])
def test_without_raw_a_model_without_a_template_is_refused(
    run: Run, without_template: str, command: str
) -> None:
    ended = run(command, "--model", without_template)
    assert (ended.code, ended.out) == (REFUSED, "")
    assert ended.err.splitlines()[-1] == (
        f"program: --model: {without_template} has no chat template, so it cannot answer messages; "
        "generate, batch and visualize can continue a text with --raw"
    )


def test_a_batch_continues_every_line(run: Run, without_template: str, tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text(f"{STORY}\nThe fox\n")
    flags = ("--max-seq-len", "20", "--dtype", "float32")
    record = run("batch", "--raw", "--json", "--input", str(file), "--model", without_template, *flags).record
    first, second = record["answers"]
    assert (first["prompt"], second["prompt"]) == (STORY, "The fox")
    alone = run("generate", "--raw", "--json", "--prompt", STORY, "--max-tokens", "6", "--dtype", "float32")
    assert first["text"].startswith(alone.record["text"])
    assert second["prompt_tokens"] < 10


def test_a_prompt_of_a_megabyte_is_refused_like_any_long_one(run: Run) -> None:
    ended = run("generate", "--prompt", "word " * 210_000)
    assert (ended.code, ended.out) == (REFUSED, "")
    assert ended.err.splitlines()[-1].startswith("program: --prompt: got 10500")
    ended = run("generate", "--raw", "--prompt", "word " * 21_000)
    assert (ended.code, ended.out) == (REFUSED, "")
    assert ended.err.splitlines()[-1].endswith("tokens, expected fewer than the context of 2048")


@pytest.mark.parametrize("flags", [("--system", ""), ("--raw",)])
def test_the_first_token_of_a_llama_is_there_once(run: Run, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Before a raw text, or written by the template."""
    model = ("--model", str(write_llama(tmp_path / "model")), *flags)
    alone = run("generate", "--json", "--prompt", "ab", *model, *SHORT)
    assert alone.record["prompt_tokens"] == 3
    file = tmp_path / "texts.txt"
    file.write_text("ab\n")
    (answer,) = run("batch", "--json", "--input", str(file), "--max-seq-len", "9", *model).record["answers"]
    assert answer["prompt_tokens"] == 3
