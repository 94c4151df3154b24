"""A prompt cache: only new tokens are prefilled, and the answers are those of an empty cache."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import ArgumentError, ArgumentTypeError, UnsupportedError
from tiny_llm.course.dispatch import MODELS
from tiny_llm.course.model import load_model
from tiny_llm.generate import stream_generate
from tiny_llm.generation.prompt_cache import PromptCache
from tiny_llm.generation.result import Result
from tiny_llm.sampling.params import Sampling

from ..support.generation.byte_text import VOCABULARY, ByteTokenizer
from ..support.generation.fake_models import CachedFake, FullContextFake, PagedFake
from ..support.generation.rules import failing_after, greedy
from ..support.page_pool import assert_consistent

TOKENIZER = ByteTokenizer()
STORY = "Once upon a time there was a fox"


def letters(context: tuple[int, ...]) -> np.ndarray:
    """Random scores of small letters, a function of the context."""
    scores = np.full(VOCABULARY, -np.inf, np.float32)
    scores[ord("a") : ord("z") + 1] = np.random.default_rng(context).standard_normal(26)
    return scores


@pytest.fixture(params=[CachedFake, PagedFake], ids=["dense", "paged"])
def model(request: pytest.FixtureRequest) -> CachedFake:
    return request.param(letters)


def answer(model: CachedFake, prompt: str, cache: PromptCache, count: int = 8, **options) -> Result:
    """Check the answer to a prompt; return it and the number of tokens prefilled for it."""
    model.calls.clear()
    generation = stream_generate(model, TOKENIZER, prompt, max_tokens=count, prompt_cache=cache, **options)
    text = "".join(generation)
    assert list(text.encode()) == greedy(letters, prompt, count)
    steps = count - 1
    cached = generation.statistics.cached_tokens
    assert sum(length for _, length in model.calls) == len(prompt) - cached + steps
    assert cache.ids == list((prompt + text[:steps]).encode())
    return generation.result


def test_each_turn_prefills_the_new_tokens_only(model: CachedFake) -> None:
    cache = PromptCache()
    prompt = "Hello. "
    for turn in range(5):
        known = len(cache.ids)
        result = answer(model, prompt, cache)
        assert (known == 0) == (turn == 0)
        assert result.statistics.cached_tokens == known
        prompt += result.text + f" And {turn}? "


@pytest.mark.parametrize("place", [0, 1, 9, 30])
def test_a_changed_prompt_is_prefilled_from_the_change_on(model: CachedFake, place: int) -> None:
    cache = PromptCache()
    answer(model, STORY, cache)
    changed = STORY[:place] + "X" + STORY[place + 1 :]
    assert answer(model, changed, cache).statistics.cached_tokens == place


@pytest.mark.parametrize("length", [1, 2, 17, len(STORY)])
def test_the_last_token_of_a_fully_cached_prompt_is_prefilled(model: CachedFake, length: int) -> None:
    cache = PromptCache()
    answer(model, STORY, cache)
    assert answer(model, STORY[:length], cache).statistics.cached_tokens == length - 1


@pytest.mark.parametrize(("count", "step"), [(1, 512), (2, 512), (3, 4)])
def test_short_answers_and_small_chunks(model: CachedFake, count: int, step: int) -> None:
    cache = PromptCache()
    for prompt in ("Hello. ", "Hello. Who are you? ", "Hello! Who?"):
        answer(model, prompt, cache, count, prefill_step=step)


@pytest.mark.parametrize("taken", [0, 1, 2, 5])
def test_an_answer_that_is_closed_early_keeps_its_tokens(model: CachedFake, taken: int) -> None:
    cache = PromptCache()
    generation = stream_generate(model, TOKENIZER, STORY, prompt_cache=cache)
    pieces = [next(generation) for _ in range(taken)]
    generation.close()
    prompt = STORY + "".join(pieces) + " Go on."
    known = len(STORY) + max(taken - 1, 0) if taken else 0
    assert answer(model, prompt, cache).statistics.cached_tokens in {known, known + 1}


def test_after_an_error_of_the_model_the_cache_starts_again(model: CachedFake) -> None:
    cache = PromptCache()
    model.rule = failing_after(letters, len(STORY) + 3)
    with pytest.raises(ZeroDivisionError):
        list(stream_generate(model, TOKENIZER, STORY, prompt_cache=cache))
    assert cache.ids == []
    model.rule = letters
    assert answer(model, STORY, cache).statistics.cached_tokens == 0


def test_an_open_answer_does_not_affect_later_ones(model: CachedFake) -> None:
    cache = PromptCache()
    for leave in ("close", "go on"):
        open_one = stream_generate(model, TOKENIZER, STORY, prompt_cache=cache)
        assert next(open_one)
        newer = stream_generate(model, TOKENIZER, STORY[:9], max_tokens=8, prompt_cache=cache)
        text = next(newer)
        if leave == "close":
            open_one.close()
        else:
            with pytest.raises(ArgumentError, match=r"^PromptCache: tokens: got an older answer"):
                next(open_one)
        text += "".join(newer)
        assert list(text.encode()) == greedy(letters, STORY[:9], 8)
        answer(model, STORY, cache)


def test_pages_are_returned_when_the_cache_is_dropped_or_closed() -> None:
    model = PagedFake(letters)
    cache = PromptCache()
    answer(model, STORY, cache)
    assert model.page_pool.used_page_ids
    cache.close()
    assert not model.page_pool.used_page_ids
    answer(model, STORY, cache)
    del cache
    assert not model.page_pool.used_page_ids
    assert_consistent(model.page_pool)


@pytest.mark.parametrize("week", sorted(MODELS["qwen2"])[1:])
def test_a_real_model_gives_the_answers_of_an_empty_cache(week: int) -> None:
    model, checkpoint = load_model("tiny", mx.float32, week=week)
    cache = PromptCache()

    def result(prompt: str, **options) -> Result:
        generation = stream_generate(model, checkpoint.tokenizer, prompt, max_tokens=20, **options)
        for _ in generation:
            pass
        return generation.result

    prompt = STORY
    for following in (" The end. Then", " And there was a second one. It"):
        prompt += result(prompt, prompt_cache=cache).text + following
        warm, cold = result(prompt, prompt_cache=cache), result(prompt)
        assert warm.token_ids == cold.token_ids
        assert warm.statistics.cached_tokens > len(checkpoint.tokenizer.encode(STORY))
        assert cold.statistics.cached_tokens == 0


def test_models_without_caches_and_draft_models_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match=r"^stream_generate: prompt_cache: got a list, expected a P"):
        stream_generate(CachedFake(letters), TOKENIZER, STORY, prompt_cache=[])
    with pytest.raises(
        ArgumentError,
        match=r"^stream_generate: prompt_cache: got a PromptCache, expected None: the model has no KV",
    ):
        stream_generate(FullContextFake(letters), TOKENIZER, STORY, prompt_cache=PromptCache())
    with pytest.raises(
        UnsupportedError,
        match=r"^stream_generate: prompt_cache: got a PromptCache, expected None with a draft",
    ):
        stream_generate(
            CachedFake(letters),
            TOKENIZER,
            STORY,
            prompt_cache=PromptCache(),
            draft_model=CachedFake(letters),
            sampling=Sampling(),
        )
