"""When readers get the tokens of a step: beside the next one, or before it where that would be late."""

import mlx.core as mx

from ..support.engine_requests import PROMPTS, read, request_of
from ..support.stepped_engine import stepped_engine


def unending(engine, max_tokens, **sampling):
    """A request that only its length or its stop strings end."""
    return request_of(engine.llm, "abc", max_tokens, sampling={"ignore_eos": True, **sampling})


def what_happens(monkeypatch, engine, handle):
    """A list that grows: "logits" when a step is started, "event" when the reader gets one."""
    happened, logits, put = [], engine.runner.logits, handle.put
    monkeypatch.setattr(
        engine.runner, "logits", lambda *given: (happened.append("logits"), logits(*given))[1]
    )
    monkeypatch.setattr(handle, "put", lambda event: (happened.append("event"), put(event)))
    return happened


def test_a_step_is_started_before_the_tokens_of_the_one_before_are_read(monkeypatch):
    engine = stepped_engine(16, 4, max_running=1, lookup=False)
    handle = engine.submit(unending(engine, 4))
    happened = what_happens(monkeypatch, engine, handle)
    expectations = (["logits", "event"], ["logits", "logits"], ["event", "logits"], ["event"], ["event"])
    for expected in expectations:
        engine.step()
        assert happened == expected
        happened.clear()
    assert handle.timings[0].generated_tokens == 4


def test_what_cannot_start_at_once_is_published_before_the_next_step(monkeypatch):
    engine = stepped_engine(16, 4, max_running=1, lookup=False)
    engine.runner.starts_at_once = False
    handle = engine.submit(unending(engine, 3))
    happened = what_happens(monkeypatch, engine, handle)
    start = mx.async_eval
    monkeypatch.setattr(mx, "async_eval", lambda *arrays: (happened.append("start"), start(*arrays)))
    step = ["logits", "start", "start"]  # logits, and tokens
    for expected in ([*step, "event"], step, [step[0], "event", *step[1:]]):
        engine.step()
        assert happened == expected
        happened.clear()


def test_a_request_that_comes_while_a_step_is_ahead_is_in_the_one_after():
    engine = stepped_engine(16, 4, max_running=2, step_tokens=8, lookup=False, prefix_cache=False)
    engine.submit(unending(engine, 9))
    for _ in range(2):
        engine.step()
    engine.submit(unending(engine, 9))
    for _ in range(3):
        engine.step()
    assert engine.statistics().step_tokens == (2, 1, 1, 3, 2)


def test_nothing_starts_ahead_while_drafts_may_come(monkeypatch):
    engine = stepped_engine(16, 4, max_running=1, lookup=True)
    handle = engine.submit(unending(engine, 30))
    happened = what_happens(monkeypatch, engine, handle)
    lookup = engine._answers._by_state[engine._scheduler.waiting[0]]._lookup
    pauses = []
    while engine.step():
        pauses.append(lookup.pauses)
        if len(pauses) > 1 and not any(pauses[-2:]):
            assert happened.count("logits") == 1
        happened.clear()
    assert {*pauses} == {True, False}


def test_a_step_whose_answers_have_all_ended_is_dropped():
    engine = stepped_engine(16, 4, max_running=2, lookup=False)
    handles = [engine.submit(unending(engine, 9)) for _ in range(2)]
    engine.step()
    for handle in handles:
        handle.cancel()
    assert not engine.step()
    assert engine.statistics().steps == 1
    engine.check()


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
    monkeypatch.setattr(engine.runner, "logits", lambda *_: 1 / 0)
    engine.step()
    assert [event.finish_reason for event in ended] == ["length"]
    assert [event.finish_reason for event in running] == [None, "error"]
    engine.check()
