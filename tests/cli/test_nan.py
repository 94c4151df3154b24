"""A model whose weights hold NaN: a sentence and exit code 1, where an empty answer was the result."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest

from tiny_llm.cli.exit_codes import FAILED
from tiny_llm.cli.loaders import LOADERS

from ..loading.folders import small_tokenizer, write_folder
from ..support.models.checkpoints import broken_copy, checkpoint
from .conftest import Run


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        *(("generate", ["--loader", loader]) for loader in LOADERS),
        ("generate", ["--json"]),
        ("generate", ["--sampler-temp", "1", "--sampler-top-p", "0.9"]),
        ("generate", ["--draft-model", "tiny"]),
        ("generate", ["--solution", "mlx"]),
        ("batch", ["--json"]),
    ],
)
def test_an_answer_of_nan_is_an_error(run: Run, tmp_path: Path, command: str, flags: list[str]) -> None:
    ended = run(command, "--model", str(broken_copy(tmp_path / "broken")), *flags)
    assert (ended.code, ended.out.strip()) == (FAILED, "")
    assert ended.err.splitlines()[-1].startswith("program: the logits of the next token are NaN: ")


def test_a_batch_prints_the_answers_of_the_questions_that_have_one(run: Run, tmp_path: Path) -> None:
    """One character of a model's vocabulary is NaN, and one of two questions has it."""
    weights = checkpoint(layers=1, tied=False)
    embedding = weights.model.embed_tokens
    known, broken = (small_tokenizer().encode(text).ids for text in ("a", "b"))
    embedding.scales[broken[0]] = mx.nan
    assert known != broken
    (tmp_path / "questions").write_text("a\nb\n")
    folder = write_folder(tmp_path / "model", weights)
    flags = ("--raw", "--input", str(tmp_path / "questions"), "--max-seq-len", "2", "--json")
    ended = run("batch", "--model", str(folder), *flags)
    assert ended.code == FAILED
    assert "NaN" in ended.err.splitlines()[-1]
    assert [answer["prompt"] for answer in json.loads(ended.out)["answers"]] == ["a"]
