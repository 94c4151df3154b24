"""A prompt cache: only what is new is read, whatever came before, and answers are those of a fresh start."""

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
    """The answer to a prompt, which is checked; and how much was read for it."""
    model.calls.clear()
    generation = stream_generate(model, TOKENIZER, prompt, max_tokens=count, prompt_cache=cache, **options)
    text = "".join(generation)
    assert list(text.encode()) == greedy(letters, prompt, count)
    steps = count - 1
    cached = generation.statistics.cached_tokens
    assert sum(length for _, length in model.calls) == len(prompt) - cached + steps
    assert cache.ids == list((prompt + text[:steps]).encode())
    return generation.result


def test_a_conversation_is_read_once(model: CachedFake) -> None:
    cache = PromptCache()
    prompt = "Hello. "
    for turn in range(5):
        known = len(cache.ids)
        result = answer(model, prompt, cache)
        assert (known == 0) == (turn == 0)
        assert result.statistics.cached_tokens == known
        prompt += result.text + f" And {turn}? "


@pytest.mark.parametrize("place", [0, 1, 9, 30])
def test_what_changed_is_read_from_there_on(model: CachedFake, place: int) -> None:
    cache = PromptCache()
    answer(model, STORY, cache)
    changed = STORY[:place] + "X" + STORY[place + 1 :]
    assert answer(model, changed, cache).statistics.cached_tokens == place


@pytest.mark.parametrize("length", [1, 2, 17, len(STORY)])
def test_of_a_prompt_that_is_all_there_the_last_token_is_read(model: CachedFake, length: int) -> None:
    cache = PromptCache()
    answer(model, STORY, cache)
    assert answer(model, STORY[:length], cache).statistics.cached_tokens == length - 1


@pytest.mark.parametrize(("count", "step"), [(1, 512), (2, 512), (3, 4)])
def test_short_answers_and_short_pieces_are_no_exception(model: CachedFake, count: int, step: int) -> None:
    cache = PromptCache()
    for prompt in ("Hello. ", "Hello. Who are you? ", "Hello! Who?"):
        answer(model, prompt, cache, count, prefill_step=step)


@pytest.mark.parametrize("taken", [0, 1, 2, 5])
def test_who_leaves_early_keeps_what_was_read(model: CachedFake, taken: int) -> None:
    cache = PromptCache()
    generation = stream_generate(model, TOKENIZER, STORY, prompt_cache=cache)
    pieces = [next(generation) for _ in range(taken)]
    generation.close()
    prompt = STORY + "".join(pieces) + " Go on."
    known = len(STORY) + max(taken - 1, 0) if taken else 0
    assert answer(model, prompt, cache).statistics.cached_tokens in {known, known + 1}


def test_a_fault_of_the_model_forgets_everything_and_the_next_answer_is_right(model: CachedFake) -> None:
    cache = PromptCache()
    model.rule = failing_after(letters, len(STORY) + 3)
    with pytest.raises(ZeroDivisionError):
        list(stream_generate(model, TOKENIZER, STORY, prompt_cache=cache))
    assert cache.ids == []
    model.rule = letters
    assert answer(model, STORY, cache).statistics.cached_tokens == 0


def test_an_answer_that_was_left_open_harms_no_later_one(model: CachedFake) -> None:
    cache = PromptCache()
    for leave in ("close", "go on"):
        open_one = stream_generate(model, TOKENIZER, STORY, prompt_cache=cache)
        assert next(open_one)
        newer = stream_generate(model, TOKENIZER, STORY[:9], max_tokens=8, prompt_cache=cache)
        text = next(newer)
        if leave == "close":
            open_one.close()
        else:
            with pytest.raises(ArgumentError, match=r"^PromptCache: tokens: got an answer that is not"):
                next(open_one)
        text += "".join(newer)
        assert list(text.encode()) == greedy(letters, STORY[:9], 8)
        answer(model, STORY, cache)


def test_pages_go_back_when_the_cache_is_dropped_or_closed() -> None:
    model = PagedFake(letters)
    cache = PromptCache()
    answer(model, STORY, cache)
    assert model.page_pool.used_page_ids
    cache.close()
    assert not model.page_pool.used_page_ids
    answer(model, STORY, cache)
    del cache
    assert not model.page_pool.used_page_ids
    model.page_pool.check()


@pytest.mark.parametrize("week", sorted(MODELS["qwen2"])[1:])
def test_a_real_model_answers_as_from_a_fresh_start(week: int) -> None:
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


def test_it_is_for_models_with_caches_and_without_a_draft() -> None:
    with pytest.raises(ArgumentTypeError, match=r"^stream_generate: prompt_cache: got a list, expected a P"):
        stream_generate(CachedFake(letters), TOKENIZER, STORY, prompt_cache=[])
    with pytest.raises(ArgumentError, match=r"^stream_generate: prompt_cache: got one for a model without"):
        stream_generate(FullContextFake(letters), TOKENIZER, STORY, prompt_cache=PromptCache())
    with pytest.raises(UnsupportedError, match=r"^stream_generate: prompt_cache: got one and a draft"):
        stream_generate(
            CachedFake(letters),
            TOKENIZER,
            STORY,
            prompt_cache=PromptCache(),
            draft_model=CachedFake(letters),
            sampling=Sampling(),
        )
