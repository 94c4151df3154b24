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
    fine, failed = json.loads(ended.out)["answers"]
    assert (fine["prompt"], "error" in fine) == ("a", False)
    assert (failed["line"], failed["prompt"], "text" in failed) == (2, "b", False)
    assert failed["error"].startswith("the logits of the next token are NaN")
    assert json.loads(ended.out)["prompts"] == 1
    assert "1 of 2 questions have no answer; question 2: the logits" in ended.err


def test_a_batch_resumes_with_the_questions_that_have_no_answer(run: Run, tmp_path: Path) -> None:
    """Of an interrupted run, and those that ended with an error."""
    weights = checkpoint(layers=1, tied=False)
    fine = write_folder(tmp_path / "fine", weights)
    (broken,) = small_tokenizer().encode("b").ids
    weights.model.embed_tokens.scales[broken] = mx.nan
    damaged = write_folder(tmp_path / "damaged", weights)
    questions, output = tmp_path / "questions", tmp_path / "answers"
    questions.write_text("a\nb\nc\nd\n")
    flags = ("--raw", "--input", str(questions), "--max-seq-len", "2", "--output", str(output), "--json")
    assert run("batch", "--model", str(damaged), *flags, "--resume").code == FAILED
    lines = output.read_text().splitlines()
    assert {record["line"]: "error" in record for record in map(json.loads, lines)} == {
        1: False, 2: True, 3: False, 4: False
    }  # fmt: skip
    cut = [line for line in lines if json.loads(line)["line"] != 3]
    output.write_text("\n".join(cut) + "\n" + '{"line": 3, "prompt": "c", "te')
    ended = run("batch", "--model", str(fine), *flags, "--resume")
    assert (ended.record["kept"], ended.record["prompts"]) == (2, 2)
    records = list(map(json.loads, output.read_text().splitlines()))
    assert [record["line"] for record in records][:2] == [1, 4]
    assert sorted(record["line"] for record in records) == [1, 2, 3, 4]
    assert all("text" in record for record in records)
    again = run("batch", "--model", str(fine), *flags, "--resume").record
    assert (again["kept"], again["prompts"]) == (4, 0)
    assert list(map(json.loads, output.read_text().splitlines())) == records
