"""`batch`: sixteen answers, the flags that shape the batch, what is counted, and the share of a cluster."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from tiny_llm.cache.storage import PagedStorage
from tiny_llm.cli.batch_file.cluster_options import share
from tiny_llm.cli.exit_codes import REFUSED, Failure, Refusal
from tiny_llm.cli.prompts import PROMPTS
from tiny_llm.engine import Engine
from tiny_llm.engine import batch as engine_requests
from tiny_llm.engine import runner as engine_runner
from tiny_llm.models.packed import packed_logits

from .conftest import Run

SHORT = ("--max-seq-len", "40")
# In float32 answers do not depend on the other rows of a batch: no token is chosen by less than rounding.
EXACT = ("--dtype", "float32")
CPU = ("--device", "cpu")  # where an engine answers
CLEAR = (1, 8)  # prompts whose tokens are all chosen by more than the rounding of 16-bit types


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The number of rows of each request in each step of the model."""
    seen: list[list[int]] = []

    def recorded(model: Any, step: Any, *rest: Any) -> mx.array:
        seen.append(step.counts)
        return packed_logits(model, step, *rest)

    monkeypatch.setattr(engine_runner, "packed_logits", recorded)
    return seen


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """The engines that answer lists."""
    made: list[Engine] = []

    def make(*arguments: Any, **options: Any) -> Engine:
        made.append(Engine(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(engine_requests, "Engine", make)
    return made


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


def test_batch_size_and_prefill_step_shape_the_steps(run: Run, steps: list[list[int]]) -> None:
    ended = run("batch", *SHORT, *CPU, "--batch-size", "3", "--prefill-step", "7")
    assert ended.code == 0
    assert max(map(len, steps)) == 3
    assert max(map(sum, steps)) == 3 + 7
    assert sorted(map(int, re.findall(r"^\[(\d+)\]", ended.out, re.M))) == list(range(1, 17))
    assert "[2] What is 17 + 25?\n17 + 25 = 42." in ended.out
    assert "16 prompts" in ended.err
    assert "tok/s" in ended.err
    assert "\x1b" not in ended.out + ended.err


def test_too_few_pages_change_no_answer(
    run: Run, engines: list[Engine], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Requests give up their pages to older ones, and are computed again."""
    stories = tmp_path / "stories.txt"
    stories.write_text("\n".join(f"Tell me a story about a {animal}." for animal in ("cat", "fox", "dog")))
    flags = ("--input", str(stories), "--max-seq-len", "140", *EXACT, *CPU)
    expected = run("batch", "--json", *flags).record["answers"]
    assert engines[0].statistics().preemptions == 0
    room = 5 * engines[0].pool.page_bytes
    monkeypatch.setattr(engine_requests, "batch_memory", lambda *arguments: room)
    assert run("batch", "--json", *flags).record["answers"] == expected
    assert engines[1].pool.num_pages == 5
    assert engines[1].statistics().preemptions > 0


def test_pages_are_made_when_they_are_used(
    run: Run, engines: list[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers are shorter than they may be."""
    made: list[PagedStorage] = []

    def make(*sizes: Any) -> PagedStorage:
        made.append(PagedStorage(*sizes))
        return made[-1]

    monkeypatch.setattr(engine_runner, "PagedStorage", make)
    assert run("batch", "--json", "--max-seq-len", "2048", "--batch-size", "4", *CPU).code == 0
    (engine,), (storage,) = engines, made
    assert engine.pool.tokens >= 4 * 2048
    assert 4 <= storage.num_pages <= engine.pool.num_pages / 4
    assert storage.keys[0].shape[0] == storage.num_pages


def test_without_flash_attention_the_loop_of_the_course_answers(run: Run, steps: list[list[int]]) -> None:
    ended = run("batch", "--json", *SHORT, *EXACT, *CPU, "--no-enable-flash-attn")
    assert steps == []
    flash = run("batch", "--json", *SHORT, *EXACT, *CPU)
    assert steps
    assert ended.record["answers"] == flash.record["answers"]


def test_batch_invariance_is_asked_of_the_engine(run: Run, engines: list[Engine], tmp_path: Path) -> None:
    questions = tmp_path / "questions.txt"
    questions.write_text("Hello\nWhat is 2 + 2?\nWho are you?")
    flags = ("--json", "--input", str(questions), *SHORT, "--dtype", "bfloat16", *CPU, "--batch-invariant")
    few, many = (run("batch", *flags, "--batch-size", size).record["answers"] for size in ("1", "3"))
    assert few == many
    assert [engine._options["batch_invariant"] for engine in engines] == [True, True]


def test_batch_invariance_that_cannot_be_kept_is_refused(run: Run, tmp_path: Path) -> None:
    output = tmp_path / "answers.jsonl"
    flags = ("--batch-invariant", "--no-enable-flash-attn", "--output", str(output), *CPU)
    ended = run("batch", *flags)
    assert ended.code == REFUSED
    expected = "--batch-invariant: got True without FlashAttention, expected False"
    assert ended.err.endswith(f"{expected}\n")
    assert not output.exists()


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


Nodes = list[dict[str, float]]
IDLE: Nodes = [{"CPU": 8.0}, {"CPU": 8.0}]
USED: Nodes = [{"CPU": 3.0}, {"memory": 1.0}]  # Ray leaves out what a node has none of


def shared(free: Nodes, cluster: dict[str, float] | None = None, **given: object) -> tuple[int, int, int]:
    options = argparse.Namespace(**{"ray_engines": None, "ray_cpus": None, "device": None, **given})
    return share(options, cluster or {"CPU": 16.0}, free)


@pytest.mark.parametrize(
    ("free", "given", "expected"),
    [
        (IDLE, {}, (2, 8, 0)),
        (IDLE, {"ray_engines": 4}, (4, 4, 0)),
        (USED, {}, (1, 3, 0)),
        (USED, {"ray_engines": 3}, (3, 1, 0)),
        (USED, {"ray_cpus": 2}, (1, 2, 0)),
    ],
)
def test_what_is_free_is_divided(free: Nodes, given: dict[str, int], expected: tuple[int, int, int]) -> None:
    assert shared(free, **given) == expected


def test_each_free_gpu_has_an_engine() -> None:
    free = [{"CPU": 8.0, "GPU": 1.0}, {"CPU": 8.0}]
    cluster = {"CPU": 16.0, "GPU": 2.0}
    assert shared(free, cluster) == (1, 8, 1)
    assert shared(free, cluster, device="cpu") == (2, 8, 0)
    with pytest.raises(Refusal, match=r"^--ray-engines: got 2, expected at most the 1 free GPUs"):
        shared(free, cluster, ray_engines=2)
    with pytest.raises(Failure, match=r"^--ray: no GPU of the cluster is free; --device cpu"):
        shared(IDLE, cluster)


@pytest.mark.parametrize("free", [[{"memory": 1.0}], [{"CPU": 0.5}], []])
def test_a_cluster_with_nothing_free_is_an_error(free: Nodes) -> None:
    with pytest.raises(Failure, match=r"^--ray: no CPU of the cluster is free$"):
        shared(free)


def test_engines_that_would_wait_for_others_are_refused() -> None:
    with pytest.raises(
        Refusal, match=r"^--ray: 2 engines with 2 CPUs each do not fit: the free CPUs of 1 nodes"
    ):
        shared(USED, ray_engines=2, ray_cpus=2)
