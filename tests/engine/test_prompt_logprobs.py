"""Log probabilities of a prompt: those of the model, whatever the steps and the cache."""

from dataclasses import replace

import pytest

from tiny_llm.engine import Engine
from tiny_llm.errors import ArgumentError

from ..support.engine_requests import PROMPTS, alone, assert_at_rest, ids_of, read, request_of

TOP = 5


def scores_of(engine, prompt, top=TOP, **options):
    """The entries of the first event, and all of them again for each choice."""
    handle = engine.submit(request_of(engine.llm, prompt, 3, prompt_logprobs=top, **options))
    given = [event.prompt_logprobs for event in handle if event.prompt_logprobs is not None]
    assert handle.cached_tokens == 0
    assert len(given) == handle.choices
    assert given == given[:1] * len(given)
    return given[0]


def assert_close(found, expected):
    assert [each.token_id for each in found] == [each.token_id for each in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
        assert [value for _, value in one.top] == pytest.approx([value for _, value in other.top], abs=1e-4)


def test_each_entry_is_what_the_model_says_after_the_tokens_before(llm, engine):
    ids = ids_of(llm, PROMPTS[1])
    entries = scores_of(engine, PROMPTS[1])
    assert [entry.token_id for entry in entries] == ids[1:]
    for length, entry in enumerate(entries, start=1):
        request = request_of(llm, PROMPTS[1], 1, logprobs=TOP)
        (event,) = engine.submit(replace(request, prompt_ids=ids[:length]))
        (next_token,) = event.logprobs
        assert [value for _, value in entry.top] == pytest.approx(
            [value for _, value in next_token.top], abs=1e-4
        )
        assert dict(next_token.top).get(entry.token_id, entry.logprob) == pytest.approx(
            entry.logprob, abs=1e-4
        )


def test_chunks_other_requests_and_the_cache_change_nothing(llm, engine):
    """The prompt takes several steps of 64 tokens; then one of 512, without others."""
    prompt = PROMPTS[2] + PROMPTS[4]
    assert len(ids_of(llm, prompt)) > 2 * 64
    others = [engine.submit(request_of(llm, each)) for each in PROMPTS]
    found = [scores_of(engine, prompt, n=2), scores_of(engine, prompt)]
    assert [read(handle) for handle in others] == [alone(llm, each) for each in PROMPTS]
    assert_at_rest(engine)
    with Engine(llm, max_context=512) as large:
        expected = scores_of(large, prompt)
    for entries in found:
        assert_close(entries, expected)


@pytest.mark.parametrize("top", [0, 1, 3])
def test_an_entry_has_as_many_alternatives_as_were_asked_for(engine, top):
    assert [len(entry.top) for entry in scores_of(engine, "What is it?", top)][:2] == [top] * 2


def test_the_tokens_of_a_request_are_those_at_its_submission(llm, engine):
    request = request_of(llm, PROMPTS[1], 3, prompt_logprobs=0)
    ids = list(request.prompt_ids)
    handle = engine.submit(replace(request, prompt_ids=(given := list(ids))))
    given.clear()
    first = next(handle)
    assert [entry.token_id for entry in first.prompt_logprobs] == ids[1:]
    assert handle.prompt_tokens == len(ids)


def test_a_prompt_of_one_token_has_none(llm, engine):
    assert len(ids_of(llm, "a")) == 1
    assert scores_of(engine, "a") == ()


def test_a_request_without_them_gets_none(llm, engine):
    assert all(event.prompt_logprobs is None for event in engine.submit(request_of(llm, PROMPTS[0])))


def test_too_many_are_refused(llm):
    with pytest.raises(ArgumentError, match="prompt_logprobs: got 21, expected at most 20"):
        request_of(llm, PROMPTS[0], prompt_logprobs=21)


def test_its_pages_are_found_by_requests_that_continue_the_prompt(llm, engine):
    scores_of(engine, PROMPTS[2])
    handle = engine.submit(request_of(llm, PROMPTS[2]))
    assert read(handle) == alone(llm, PROMPTS[2])
    assert handle.cached_tokens > 0
