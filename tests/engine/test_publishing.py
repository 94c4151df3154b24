"""When readers get the tokens of a step: beside the next one, or before it where that would be late."""

import mlx.core as mx
import pytest

from ..support.engine_requests import PROMPTS, read, request_of
from ..support.stepped_engine import HashRunner, stepped_engine


def unending(engine, max_tokens, **sampling):
    """A request that only its length or its stop strings end."""
    return request_of(engine.llm, "abc", max_tokens, sampling={"ignore_eos": True, **sampling})


@pytest.mark.parametrize("at_once", [True, False])
def test_a_step_is_published_beside_the_next_one_or_before_it(monkeypatch, at_once):
    engine, happened = stepped_engine(16, 4, max_running=1, lookup=False), []
    monkeypatch.setattr(HashRunner, "starts_at_once", at_once)
    handle = engine.submit(unending(engine, 3))
    engine.step()
    assert not handle._events
    start, put = mx.async_eval, handle.put
    monkeypatch.setattr(mx, "async_eval", lambda *arrays: (happened.append("start"), start(*arrays)))
    monkeypatch.setattr(handle, "put", lambda event: (happened.append("event"), put(event)))
    engine.step()
    assert happened[:2] == (["start", "event"] if at_once else ["event", "start"])


def test_quantized_blocks_start_at_once(llm, engine):
    assert not engine._steps.runner.starts_at_once
    read(engine.submit(request_of(llm, PROMPTS[0], 2)))
    assert engine._steps.runner.starts_at_once


def test_a_stop_string_ends_an_answer_before_the_next_step():
    engine = stepped_engine(16, 4, max_running=1, lookup=False)
    handle = engine.submit(unending(engine, 40, stop="b"))
    while engine.step():
        pass
    assert [event.finish_reason for event in handle][-1] == "stop"
    assert engine.statistics().steps == handle.timings[0].generated_tokens


def test_an_answer_that_has_its_last_token_survives_the_step_after(monkeypatch):
    engine = stepped_engine(16, 4, max_running=2, lookup=False)
    ended, running = (engine.submit(unending(engine, most)) for most in (1, 5))
    engine.step()
    monkeypatch.setattr(engine.runner, "logits", lambda plan: 1 / 0)
    engine.step()
    assert [event.finish_reason for event in ended] == ["length"]
    assert [event.finish_reason for event in running] == [None, "error"]
    engine.check()
