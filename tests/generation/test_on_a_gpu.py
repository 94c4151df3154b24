"""Answers with the operations of a GPU: the greedy tokens of the embedded model are those of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from tiny_llm import LLM, ChatSession, NumericError, Sampling
from tiny_llm.cache.stacked import StackedKvCache
from tiny_llm.generate import stream_generate
from tiny_llm.generation.defaults import prefill_chunk
from tiny_llm.generation.result import Result
from tiny_llm.paged_kv_cache import TinyKvPagedCache, TinyKvPagedPool

from ..support.generation.byte_text import VOCABULARY, ByteTokenizer
from ..support.generation.fake_models import CachedFake
from ..support.generation.rules import random_rule
from ..support.gpu import DEVICE_NAME, on_a_gpu
from ..support.models.checkpoints import broken_copy

TALE = "A fox and a crow lived near a wood. " * 9
PROMPTS = ["Once upon a time", "What is a KV cache?", TALE, "The fox", "A token is", "There was a brave"]
COUNTS = (15, 3, 9, 12, 1, 20)  # tokens of each answer, so that requests leave one by one
HOT = Sampling(temp=1.0, seed=1, max_tokens=20)


@pytest.fixture(scope="module")
def cpu() -> LLM:
    return LLM("tiny", dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def fused() -> LLM:
    with on_a_gpu():
        llm = LLM("tiny", dtype="float32", device=DEVICE_NAME)
    assert all(block.gpu_weights is not None for block in llm.model.layers_inner)
    return llm


@pytest.fixture
def gpu(fused: LLM) -> Iterator[LLM]:
    """The embedded model on a GPU, in a test on a GPU."""
    with on_a_gpu():
        yield fused


def same_answers(actual: list[Result], expected: list[Result]) -> None:
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.token_ids == theirs.token_ids
        assert ours.text == theirs.text
        assert ours.finish_reason == theirs.finish_reason


@pytest.fixture(scope="module")
def answers(cpu: LLM) -> list[Result]:
    """Each alone on the CPU."""
    return [cpu.generate(prompt, max_tokens=20) for prompt in PROMPTS]


def test_an_answer_alone(gpu: LLM, answers: list[Result]) -> None:
    same_answers([gpu.generate(prompt, max_tokens=20) for prompt in PROMPTS], answers)
    assert len({answer.token_ids for answer in answers}) == len(PROMPTS)


@pytest.mark.parametrize(
    "batch_size", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(9, marks=pytest.mark.slow)]
)
def test_a_batch(gpu: LLM, answers: list[Result], batch_size: int) -> None:
    """With fewer slots than prompts, requests join as others leave."""
    caches = gpu.model.create_batch_cache(batch_size, 100)
    assert {type(layer) for layer in caches} == {StackedKvCache}
    same_answers(gpu.generate(PROMPTS, max_tokens=20, batch_size=batch_size), answers)


@pytest.mark.slow
def test_requests_of_a_batch_leave_at_their_own_end(gpu: LLM, cpu: LLM) -> None:
    """Each answer ends with a word that it contains after some tokens."""
    alone = [cpu.generate(prompt, max_tokens=count) for prompt, count in zip(PROMPTS, COUNTS, strict=True)]
    stop = sorted({result.text.split()[-1] for result in alone if result.text.split()})[:4]
    expected = [cpu.generate(prompt, max_tokens=20, stop=stop) for prompt in PROMPTS]
    assert len({len(result.token_ids) for result in expected}) > 2
    same_answers(gpu.generate(PROMPTS, max_tokens=20, stop=stop, batch_size=3), expected)


def test_logprobs(gpu: LLM, cpu: LLM) -> None:
    ours, theirs = (llm.generate(PROMPTS[0], max_tokens=8, logprobs=3) for llm in (gpu, cpu))
    same_answers([ours], [theirs])
    for one, other in zip(ours.logprobs, theirs.logprobs, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-3)


def test_a_draft_model(gpu: LLM, answers: list[Result]) -> None:
    """`gpu` has made this a test on a GPU."""
    llm = LLM("tiny", dtype="float32", device=DEVICE_NAME, draft_model="tiny")
    same_answers([llm.generate(prompt, max_tokens=20) for prompt in PROMPTS[:2]], answers[:2])


@pytest.mark.slow
def test_a_chat_that_keeps_its_cache(gpu: LLM, cpu: LLM) -> None:
    ours, theirs = ChatSession(gpu), ChatSession(cpu)
    for turn, question in enumerate(("My name is Emma.", "What is my name?", "Tell me a story.")):
        results = [session.ask(question, max_tokens=40) for session in (ours, theirs)]
        same_answers(*([result] for result in results))
        cached = [result.statistics.cached_tokens for result in results]
        assert cached[0] == cached[1]
        assert (cached[0] > 0) == (turn > 0)


def test_a_sampled_answer_repeats(gpu: LLM) -> None:
    results = [gpu.generate("Once upon a time", sampling=HOT) for _ in range(2)]
    same_answers(results[:1], results[1:])


def test_nan_fails_in_every_call(tmp_path: Path) -> None:
    with on_a_gpu():
        llm = LLM(broken_copy(tmp_path / "broken"), device=DEVICE_NAME)
        for call in (
            lambda: llm.chat("Hello."),
            lambda: llm.generate(["Once", "There"], max_tokens=5),
            lambda: llm.generate("Once", sampling=HOT),
            lambda: llm.generate(["Once", "There"], sampling=HOT),
            lambda: llm.generate("Once", logprobs=1),
            lambda: list(llm.stream("Once")),
        ):
            with pytest.raises(NumericError, match=r"^the logits of the next token are NaN"):
                call()


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_nan_in_one_request_of_a_batch_fails_only_that_one(
    gpu: LLM, monkeypatch: pytest.MonkeyPatch, batch_size: int
) -> None:
    """One token of one answer makes keys and values NaN, in a slot that the next request takes over.

    Beside the long request, the next one has hidden columns there.
    """
    prompts = ["Once upon a time", TALE, "A token is", "There was"]
    expected = gpu.generate(prompts, max_tokens=12)
    others = {token for result in expected[1:] for token in result.token_ids}
    first = expected[0].token_ids
    bad = first[1]
    assert bad not in {first[0], *others}
    embed = gpu.model.embedding

    def embedding(ids: mx.array) -> mx.array:
        vectors = embed(ids)
        return mx.where((ids == bad)[..., None], mx.nan, vectors) if ids.shape[1] == 1 else vectors

    embedding.as_linear = embed.as_linear  # type: ignore[attr-defined]
    monkeypatch.setattr(gpu.model, "embedding", embedding)
    with pytest.raises(NumericError) as caught:
        gpu.generate(prompts, max_tokens=12, batch_size=batch_size)
    broken, *results = caught.value.results
    assert broken.finish_reason is None
    assert broken.token_ids == first[:2]
    same_answers(results, expected[1:])


class Recorded(CachedFake):
    """Notes the number of tokens of each call."""

    def __call__(self, inputs: mx.array, offset: int | list[int], cache: list[Any]) -> mx.array:
        self.calls.append(inputs.shape)
        return mx.zeros((*inputs.shape, VOCABULARY))


def test_a_prompt_is_processed_in_larger_chunks_than_on_the_cpu() -> None:
    def chunks(**options: Any) -> list[int]:
        model = Recorded(random_rule())
        stream = stream_generate(model, ByteTokenizer(), "x" * 2500, max_tokens=1, **options)
        list(stream)
        return [length for _, length in model.calls]

    with on_a_gpu():
        assert prefill_chunk() == 2048
        assert chunks() == chunks(prefill_step=None) == [2048, 452]
        assert chunks(prefill_step=2000) == [2000, 500]
    with mx.stream(mx.cpu):
        assert prefill_chunk() == 512
        assert chunks(prefill_step=None) == [512, 512, 512, 512, 452]


def test_a_step_is_started_ahead_where_no_cache_waits(gpu: LLM) -> None:
    assert gpu.model.starts_ahead(gpu.model.create_kv_cache())
    assert gpu.model.starts_ahead(gpu.model.create_batch_cache(2, 64))
    paged = [TinyKvPagedCache(TinyKvPagedPool(16)) for _ in gpu.model.layers_inner]
    assert not gpu.model.starts_ahead(paged)
