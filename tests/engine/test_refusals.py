"""What an engine refuses at the call: requests it can never run, wrong fields, and what comes too late."""

import math

import pytest

from tiny_llm.engine import Engine, EngineRequest
from tiny_llm.errors import (
    ArgumentError,
    ArgumentTypeError,
    Draining,
    QueueFull,
    RefusedArgument,
)
from tiny_llm.sampling.params import Sampling

from ..support.engine_requests import PROMPTS, alone, assert_at_rest, read, request_of


def test_too_many_requests_are_refused(llm):
    with Engine(llm, max_context=512, max_running=1, max_waiting=1, page_size=8) as engine:
        first = engine.submit(request_of(llm, PROMPTS[0], 300, sampling={"ignore_eos": True}))
        next(first)
        second = engine.submit(request_of(llm, PROMPTS[1]))
        with pytest.raises(QueueFull, match="queue of 1 waiting requests is full"):
            engine.submit(request_of(llm, PROMPTS[1]))
        first.cancel()
        assert read(second) == alone(llm, PROMPTS[1])


def test_what_is_no_request_is_refused(engine):
    with pytest.raises(ArgumentTypeError, match=r"request: got a str, expected an EngineRequest"):
        engine.submit("Once")


def test_a_draining_engine_finishes_and_accepts_nothing(llm, engine):
    handle = engine.submit(request_of(llm, PROMPTS[0]))
    assert engine.drain(timeout=10)
    with pytest.raises(Draining):
        engine.submit(request_of(llm, PROMPTS[1]))
    assert read(handle) == alone(llm, PROMPTS[0])


def test_a_closed_engine_accepts_nothing_and_has_ended_all_requests(llm):
    engine = Engine(llm, max_context=512, page_size=8)
    handle = engine.submit(request_of(llm, PROMPTS[0], 400, n=2, sampling={"ignore_eos": True}))
    engine.close()
    assert [event.finish_reason for event in handle if event.finish_reason] == ["cancelled"] * 2
    with pytest.raises(Draining):
        engine.submit(request_of(llm, PROMPTS[0]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt_ids": []}, "prompt_ids: got no tokens"),
        ({"prompt_ids": [4096]}, "prompt_ids: got an unknown token id, expected ids from 0 to 4095"),
        ({"prompt_ids": [-1]}, "prompt_ids: got an unknown token id"),
        ({"prompt_ids": [5] * 512}, "prompt_ids: got 512 tokens, expected fewer than the context of 512"),
        (
            {"prompt_ids": [5] * 500, "sampling": Sampling(max_tokens=13)},
            "max_tokens: got 13 after a prompt of 500 tokens, expected at most 12",
        ),
        ({"prompt_ids": [5], "sampling": Sampling(logit_bias={4096: 1.0})}, "logit_bias: got the id 4096"),
        ({"prompt_ids": [5], "n": 17}, "Engine.submit: n: got 17, expected at most 16"),
    ],
)
def test_what_can_never_run_is_refused_at_once(engine, options, message):
    with pytest.raises(ArgumentError, match=message):
        engine.submit(EngineRequest(**options))
    assert_at_rest(engine)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("deadline", seconds) for seconds in (0, -1, math.inf, math.nan, "1")),
        *(("n", 0), ("id", 5), ("salt", 5), ("grammar", "a"), ("sampling", {})),
        *(("logprobs", -1), ("prompt_logprobs", -1)),
    ],
)
def test_a_wrong_field_of_a_request_is_refused(name, value):
    with pytest.raises(RefusedArgument, match=f"^EngineRequest: {name}: got"):
        EngineRequest(**{"prompt_ids": [5], name: value})


def test_an_observer_is_a_function(engine):
    with pytest.raises(RefusedArgument, match="callback"):
        engine.observe([])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_context": 10**6}, "max_context: got 1000000, expected at most the model's"),
        ({"kv_memory": 1000}, "kv_memory: got 1000 bytes, expected at least one page"),
        ({"page_size": 0}, "page_size: got 0"),
        ({"max_waiting": 0}, "max_waiting: got 0"),
        ({"draft_tokens": 0}, "draft_tokens: got 0"),
        ({"lookup": 1}, "lookup: got an int, expected a bool"),
    ],
)
def test_an_engine_that_cannot_be_made_is_refused(llm, options, message):
    with pytest.raises(RefusedArgument, match=f"^Engine: {message}"):
        Engine(llm, **options)
