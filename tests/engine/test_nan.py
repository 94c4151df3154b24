"""NaN where scores should be: an error at the token that it would have chosen, never an answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tiny_llm import LLM, NumericError, Sampling, batch_generate
from tiny_llm.generate import speculative_generate, stream_generate

from ..support.checkpoints import broken_copy
from ..support.fakes import ByteTokenizer, CachedFake, FullContextFake, PagedFake, Rule, babbling, greedy

HOT = Sampling(temp=1.0, seed=1, max_tokens=30)
PROMPT = "Say on: "
SENTENCE = r"^the scores of the next token are NaN: .* float32 has the widest range$"


def lost_behind(rule: Rule, length: int) -> Rule:
    """The same rule for contexts of at most that many tokens, and NaN behind that."""

    def losing(context: tuple[int, ...]) -> np.ndarray:
        scores = rule(context)
        return np.full_like(scores, np.nan) if len(context) > length else scores

    return losing


@pytest.mark.parametrize("fake", [FullContextFake, CachedFake, PagedFake])
def test_the_tokens_before_are_an_answer_and_then_it_fails(fake) -> None:
    rule = babbling(3)
    expected = greedy(rule, PROMPT, 6)
    assert len(expected) == 6
    model = fake(lost_behind(rule, len(PROMPT) + 5))
    generation = stream_generate(model, ByteTokenizer(), PROMPT, max_tokens=30)
    with pytest.raises(NumericError, match=SENTENCE):
        for _ in generation:
            pass
    assert list(generation.result.token_ids) == expected
    if fake is PagedFake:
        assert not model.page_pool.used_page_ids


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temp=1.0, seed=1)])
def test_a_model_that_checks_guesses_is_checked_itself(sampling) -> None:
    rule = babbling(3)
    for length in (0, len(PROMPT) + 3):
        with pytest.raises(NumericError, match=SENTENCE):
            speculative_generate(
                CachedFake(rule),
                CachedFake(lost_behind(rule, length)),
                ByteTokenizer(),
                ByteTokenizer(),
                PROMPT,
                sampling=sampling,
            )


def test_one_request_of_a_batch_is_enough() -> None:
    rule = babbling(3)

    def lost_for_one(context: tuple[int, ...]) -> np.ndarray:
        scores = rule(context)
        return np.full_like(scores, np.nan) if context[0] == ord("B") and len(context) > 3 else scores

    fine = batch_generate(CachedFake(rule), ByteTokenizer(), ["A: ", "B: "], 12)
    assert [index for index, _ in fine] == [0, 1]
    with pytest.raises(NumericError, match=SENTENCE):
        batch_generate(CachedFake(lost_for_one), ByteTokenizer(), ["A: ", "B: "], 12)


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
