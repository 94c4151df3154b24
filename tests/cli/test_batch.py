"""`batch`: sixteen answers, the flags that shape the batch, and what is counted."""

from __future__ import annotations

import re
from typing import Any

import mlx.core as mx
import pytest

from tiny_llm.cli import batch
from tiny_llm.cli.exit_codes import REFUSED
from tiny_llm.cli.questions.built_in_prompts import PROMPTS

from .conftest import Run

SHORT = ("--max-seq-len", "40")
# In float32 answers do not depend on the other rows of a batch: no token is chosen by less than rounding.
EXACT = ("--dtype", "float32")
CLEAR = (1, 8)  # prompts whose tokens are all chosen by more than the rounding of 16-bit types


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of all inputs that the real model is called with."""
    seen: list[tuple[int, ...]] = []
    build_backend = batch.build_tiny_llm_backend

    def assemble_recorded(*arguments: Any) -> Any:
        backend = build_backend(*arguments)
        backend.model = Recorded(backend.model, seen)
        return backend

    monkeypatch.setattr(batch, "build_tiny_llm_backend", assemble_recorded)
    return seen


class Recorded:
    def __init__(self, model: Any, seen: list[tuple[int, ...]]):
        self._model, self._seen = model, seen

    def __call__(self, inputs: mx.array, *where: Any) -> mx.array:
        self._seen.append(inputs.shape)
        return self._model(inputs, *where)

    def next_logits(self, inputs: mx.array, *where: Any) -> mx.array:
        self._seen.append(inputs.shape)
        return self._model.next_logits(inputs, *where)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


@pytest.fixture(scope="module")
def record(run: Run) -> Any:
    """The record of a run without further flags."""
    return run("batch", "--json").record


def test_every_prompt_has_one_answer_and_tokens_are_counted(record: Any) -> None:
    answers = record["answers"]
    assert [answer["prompt"] for answer in answers] == list(PROMPTS)
    assert record["prompts"] == len(PROMPTS) == 16
    assert record["generated_tokens"] == sum(answer["generated_tokens"] for answer in answers)
    assert record["prompt_tokens"] == sum(answer["prompt_tokens"] for answer in answers)
    assert record["output_tokens_per_second"] == record["generated_tokens"] / record["seconds"]


def test_the_answers_are_those_of_generate(run: Run, record: Any) -> None:
    for answer in (record["answers"][index] for index in CLEAR):
        alone = run("generate", "--json", "--prompt", answer["prompt"]).record
        for field in ("text", "prompt_tokens", "generated_tokens", "finish_reason"):
            assert alone[field] == answer[field]


def test_an_answer_at_its_maximum_length_has_finish_reason_length(run: Run) -> None:
    answers = run("batch", "--json", *SHORT, *EXACT).record["answers"]
    reasons = {answer["finish_reason"] for answer in answers}
    assert reasons == {"stop", "length"}
    for answer in answers:
        if answer["finish_reason"] == "length":
            assert answer["prompt_tokens"] + answer["generated_tokens"] == 41  # the last one is in no cache
            length = str(answer["generated_tokens"])
            flags = ("--prompt", answer["prompt"], "--max-tokens", length)
            alone = run("generate", "--json", *flags, *EXACT).record
            assert alone["text"] == answer["text"]


def test_batch_size_and_prefill_step_shape_the_model_calls(run: Run, shapes: list[tuple[int, ...]]) -> None:
    ended = run("batch", *SHORT, "--batch-size", "3", "--prefill-step", "7")
    assert ended.code == 0
    assert {rows for rows, _ in shapes} == {1, 3}
    assert max(length for _, length in shapes) == 7
    assert sorted(map(int, re.findall(r"^\[(\d+)\]", ended.out, re.M))) == list(range(1, 17))
    assert "[2] What is 17 + 25?\n17 + 25 = 42." in ended.out
    assert "16 prompts" in ended.err
    assert "tok/s" in ended.err
    assert "\x1b" not in ended.out + ended.err


def test_sizes_larger_than_all_prompts_work(run: Run, record: Any) -> None:
    whole = "2048"  # the context
    flags = ("--prefill-step", whole, "--max-seq-len", whole, "--batch-size", str(10**25))
    ended = run("batch", "--json", *flags)
    assert [answer["prompt"] for answer in ended.record["answers"]] == list(PROMPTS)
    assert ended.record["answers"][1]["text"] == record["answers"][1]["text"]


def test_a_prompt_too_long_for_the_model_does_not_name_max_seq_len(run: Run) -> None:
    ended = run("batch", "--system", "word " * 3000)
    assert ended.code == REFUSED
    assert "expected fewer than the context of 2048" in ended.err
    assert "--max-seq-len" not in ended.err


def test_system_message_attention_and_type_can_be_chosen(run: Run, record: Any) -> None:
    other = run(
        "batch", "--json", *SHORT, "--system", "", "--no-enable-flash-attn", "--dtype", "float32"
    ).record
    assert (other["flash_attention"], record["flash_attention"]) == (False, True)
    assert other["dtype"] == "float32"
    pairs = list(zip(record["answers"], other["answers"], strict=True))
    assert len({long["prompt_tokens"] - short["prompt_tokens"] for long, short in pairs} - {0}) == 1
    assert all(a["prompt_tokens"] + a["generated_tokens"] <= 41 for a in other["answers"])
