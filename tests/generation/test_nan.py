"""NaN logits: an error at the token that they would choose, never an answer."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_llm import LLM, NumericError, Sampling, batch_generate
from tiny_llm.generate import speculative_generate, stream_generate

from ..support.generation.byte_text import ByteTokenizer
from ..support.generation.fake_models import CachedFake, FullContextFake, PagedFake
from ..support.generation.rules import Rule, greedy, random_rule
from ..support.models.checkpoints import broken_copy

HOT = Sampling(temp=1.0, seed=1, max_tokens=30)
PROMPT = "Say on: "
SENTENCE = r"^the logits of the next token are NaN: .* float32 has the largest range$"


def nan_after(rule: Rule, length: int) -> Rule:
    """`rule` for contexts of at most `length` tokens; NaN for longer ones."""

    def broken(context: tuple[int, ...]) -> np.ndarray:
        scores = rule(context)
        return np.full_like(scores, np.nan) if len(context) > length else scores

    return broken


@pytest.mark.parametrize("fake", [FullContextFake, CachedFake, PagedFake])
def test_tokens_before_the_nan_are_yielded(fake) -> None:
    rule = random_rule(3)
    expected = greedy(rule, PROMPT, 6)
    assert len(expected) == 6
    model = fake(nan_after(rule, len(PROMPT) + 5))
    generation = stream_generate(model, ByteTokenizer(), PROMPT, max_tokens=30)
    with pytest.raises(NumericError, match=SENTENCE):
        for _ in generation:
            pass
    assert list(generation.result.token_ids) == expected
    if fake is PagedFake:
        assert not model.page_pool.used_page_ids


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temp=1.0, seed=1)])
def test_nan_of_the_verifying_model_is_an_error(sampling) -> None:
    rule = random_rule(3)
    for length in (0, len(PROMPT) + 3):
        with pytest.raises(NumericError, match=SENTENCE):
            speculative_generate(
                CachedFake(rule),
                CachedFake(nan_after(rule, length)),
                ByteTokenizer(),
                ByteTokenizer(),
                PROMPT,
                sampling=sampling,
            )


def test_nan_in_one_request_of_a_batch_is_an_error() -> None:
    rule = random_rule(3)

    def lost_for_one(context: tuple[int, ...]) -> np.ndarray:
        scores = rule(context)
        return np.full_like(scores, np.nan) if context[0] == ord("B") and len(context) > 3 else scores

    fine = batch_generate(CachedFake(rule), ByteTokenizer(), ["A: ", "B: "], 12)
    assert [index for index, _ in fine] == [0, 1]
    for fake in (CachedFake, PagedFake):
        model = fake(lost_for_one)
        ended: list[int] = []
        with pytest.raises(NumericError, match=SENTENCE) as caught:
            batch_generate(
                model,
                ByteTokenizer(),
                ["B: ", "A: ", "B: ", "A: "],
                12,
                2,
                finished=lambda request, ended=ended: ended.append(request.prompt_idx),
            )
        results = pickle.loads(pickle.dumps(caught.value)).results
        assert [result.finish_reason for result in results] == [None, "length", None, "length"]
        assert [results[1].text, results[3].text] == [fine[0][1]] * 2
        assert sorted(ended) == [1, 3]
        if fake is PagedFake:
            assert not model.page_pool.used_page_ids


@pytest.mark.parametrize(
    ("draft", "sampling"),
    [(None, Sampling()), (None, HOT), (None, Sampling(repetition_penalty=1.5)), ("tiny", Sampling())],
    ids=str,
)
def test_the_answers_of_other_prompts_are_complete(monkeypatch, sampling, draft) -> None:
    """NaN in one step, for every row."""
    if draft is not None and sampling.repetition_penalty is not None:
        return
    llm = LLM("tiny", dtype="float32", draft_model=draft)
    prompts = ["Once upon a time", "The fox", "A token is", "There was"]
    options = {"sampling": sampling, "max_tokens": 6, "batch_size": 1}
    expected = llm.generate(prompts, **options)
    score, calls = llm.model.score, [0]

    def lost(x: Any) -> Any:
        calls[0] += 1
        return score(x) * (math.nan if calls[0] == 2 else 1)

    monkeypatch.setattr(llm.model, "score", lost)
    with pytest.raises(NumericError, match=SENTENCE) as caught:
        llm.generate(prompts, **options)
    first, *others = caught.value.results
    assert first.finish_reason is None
    assert 0 < len(first.token_ids) < 6
    assert first.token_ids == expected[0].token_ids[: len(first.token_ids)]
    assert [result.text for result in others] == [result.text for result in expected[1:]]


def test_a_real_model_fails_in_every_call(tmp_path: Path) -> None:
    llm = LLM(broken_copy(tmp_path / "broken"))
    for call in (
        lambda: llm.chat("Hello."),
        lambda: llm.generate(["Once", "There"], max_tokens=5),
        lambda: llm.generate("Once", sampling=HOT),
        lambda: llm.generate(["Once", "There"], sampling=HOT),
        lambda: llm.generate("Once", logprobs=1),
        lambda: list(llm.stream("Once")),
    ):
        with pytest.raises(NumericError, match=SENTENCE):
            call()
