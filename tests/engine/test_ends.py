"""How requests end: cancelled, at a deadline, a stop string or a stop token, and who is told."""

import threading
import time

import pytest

from tiny_llm.engine import Engine
from tiny_llm.generation.text import TextStream

from ..support.engine_requests import PROMPTS, alone, assert_at_rest, read, request_of
from ..support.stepped_engine import stepped_engine


def test_a_cancelled_request_ends_at_once_and_alone(llm, engine):
    kept = engine.submit(request_of(llm, PROMPTS[0], 40))
    cancelled = engine.submit(request_of(llm, PROMPTS[1], 400, sampling={"ignore_eos": True}))
    next(cancelled)
    cancelled.cancel()
    cancelled.cancel()
    ((_, tokens, reason),) = read(cancelled)
    assert reason == "cancelled"
    assert len(tokens) < 399
    assert read(kept) == alone(llm, PROMPTS[0], 40)
    assert_at_rest(engine)


def test_a_cancelled_request_ends_with_the_text_that_was_held_back(llm, engine, monkeypatch):
    """By the detokenizer, and as the possible beginning of a stop string."""
    monkeypatch.setattr(TextStream, "finish", lambda stream: "x")
    handle = engine.submit(request_of(llm, PROMPTS[0], 400, sampling={"ignore_eos": True, "stop": ("xy",)}))
    next(handle)
    handle.cancel()
    *_, last = handle
    assert (last.text[-1:], last.finish_reason) == ("x", "cancelled")


@pytest.mark.parametrize(("held_back", "text", "reason"), [("x", "x", "length"), ("xy", "", "stop")])
def test_what_the_detokenizer_held_back_is_seen_by_the_stop_strings(
    llm, engine, monkeypatch, held_back, text, reason
):
    ((before, tokens, _),) = alone(llm, PROMPTS[0], 4)
    monkeypatch.setattr(TextStream, "finish", lambda stream: held_back)
    answer = read(engine.submit(request_of(llm, PROMPTS[0], 4, sampling={"stop": ("xy",)})))
    assert answer == [(before + text, tokens, reason)]


def test_a_request_that_waits_can_be_cancelled(llm):
    with Engine(llm, max_context=512, max_running=1, page_size=8) as engine:
        running = engine.submit(request_of(llm, PROMPTS[0]))
        waiting = engine.submit(request_of(llm, PROMPTS[1], n=1))
        waiting.cancel()
        assert read(waiting) == [("", (), "cancelled")]
        assert read(running) == alone(llm, PROMPTS[0])


def test_what_runs_and_waits_is_counted_and_keeps_a_drain_waiting(llm):
    with Engine(llm, max_context=512, max_running=2, page_size=8) as engine:
        endless = request_of(llm, PROMPTS[0], 400, n=2, sampling={"ignore_eos": True})
        handles = [engine.submit(endless) for _ in range(4)]
        next(handles[0])
        statistics = engine.statistics()
        assert (statistics.running, statistics.waiting) == (2, 3)
        assert (statistics.pages_total, statistics.page_size) == (engine.pool.num_pages, 8)
        assert 0 < statistics.pages_used < statistics.pages_total
        assert not engine.drain(timeout=0)


def test_an_engine_may_be_closed_at_the_end_of_a_request(llm):
    """That is in its own thread, which does not wait for itself."""
    engine = Engine(llm, max_context=512, page_size=8)
    handle = engine.submit(request_of(llm, PROMPTS[0], 4))
    handle.call_at_end(engine.close)
    assert read(handle) == alone(llm, PROMPTS[0], 4)
    assert engine._stopped.wait(30)


def test_a_deadline_ends_a_request(llm, engine):
    request = request_of(llm, PROMPTS[0], 400, deadline=0.05, sampling={"ignore_eos": True})
    ((_, tokens, reason),) = read(engine.submit(request))
    assert reason == "deadline"
    assert len(tokens) < 400


def test_a_stop_string_ends_an_answer(llm, engine):
    request = request_of(llm, PROMPTS[0], 24, sampling={"stop": "there"})
    assert read(engine.submit(request)) == alone(llm, PROMPTS[0], stop="there")
    *_, last = engine.submit(request_of(llm, PROMPTS[0], sampling={"stop": ("never", "there")}))
    assert (last.finish_reason, last.stop_string) == ("stop", "there")
    *_, last = engine.submit(request_of(llm, PROMPTS[0], 4))
    assert (last.finish_reason, last.stop_string) == ("length", None)


def test_a_stop_token_is_a_token_of_its_answer_and_not_of_its_text(llm, engine):
    ((_, tokens, _),) = alone(llm, PROMPTS[0], 6)
    sampling = {"stop_token_ids": (tokens[3],)}
    ((text, seen, reason),) = read(engine.submit(request_of(llm, PROMPTS[0], 6, sampling=sampling)))
    assert tokens[3] not in tokens[:3]
    assert (text, seen, reason) == (llm.tokenizer.decode(tokens[:3]), tokens[:4], "stop")


def test_a_stop_string_counts_after_the_tokens_that_an_answer_must_have(llm, engine):
    ((_, tokens, _),) = alone(llm, PROMPTS[0], 6)
    stop = llm.tokenizer.decode([tokens[2]])
    for min_tokens, expected in ((2, (3, "stop")), (3, (6, "length"))):
        sampling = {"stop": stop, "min_tokens": min_tokens}
        ((_, seen, reason),) = read(engine.submit(request_of(llm, PROMPTS[0], 6, sampling=sampling)))
        assert (len(seen), reason) == expected


def test_cancelling_a_request_ends_all_its_answers(llm, engine):
    handle = engine.submit(request_of(llm, PROMPTS[0], 400, n=3, sampling={"ignore_eos": True}))
    next(handle)
    handle.cancel()
    reasons = [event.finish_reason for event in handle if event.finish_reason]
    assert reasons == ["cancelled"] * 3
    assert_at_rest(engine)


def test_a_request_that_is_cancelled_while_its_step_is_computed_ends_alone(llm, engine, monkeypatch):
    logits = engine._steps.runner.logits

    def cancel(plan):
        if len(plan.rows) > 1:
            cancelled.cancel()
        return logits(plan)

    monkeypatch.setattr(engine._steps.runner, "logits", cancel)
    cancelled = engine.submit(request_of(llm, PROMPTS[1], 400, sampling={"ignore_eos": True}))
    next(cancelled)
    assert read(engine.submit(request_of(llm, PROMPTS[0]))) == alone(llm, PROMPTS[0])
    assert list(cancelled)[-1].finish_reason == "cancelled"


def test_a_cancelled_answer_has_the_text_of_all_its_tokens(llm, engine):
    """Also what was held back because a stop string might begin there."""
    ((whole, *_),) = alone(llm, PROMPTS[0], 12)
    handle = engine.submit(request_of(llm, PROMPTS[0], 400, sampling={"stop": f"{whole} and so on"}))
    first = next(handle)
    assert first.text == ""
    handle.cancel()
    events = [first, *handle]
    assert events[-1].finish_reason == "cancelled"
    tokens = [token for event in events for token in event.token_ids]
    assert "".join(event.text for event in events) == llm.tokenizer.decode(tokens)


@pytest.mark.parametrize("reason", ["length", "cancelled", "deadline", "error", "engine failed"])
def test_the_end_of_a_request_is_told_when_all_is_done_and_wakes_a_drain(monkeypatch, reason):
    """With its last event come its timings; its pages and places are free."""
    engine = stepped_engine(8, 4, max_running=2)
    request = request_of(engine.llm, "abc", 4, n=2, deadline=1000.0, sampling={"ignore_eos": True})
    handle, told, observed = engine.submit(request), [], []
    engine.observe(observed.append)
    handle.call_at_end(lambda: told.append((sorted(handle.timings), len(observed), engine.statistics())))
    engine.step()
    drain = threading.Thread(target=engine.drain, daemon=True)
    drain.start()
    while not engine._mailbox.closing:  # then it has the lock until it waits
        time.sleep(0.001)
    if reason == "cancelled":
        handle.cancel()
    elif reason == "error":
        monkeypatch.setattr(engine.runner, "logits", lambda plan: 1 / 0)
    elif reason == "engine failed":
        engine._give_up(ZeroDivisionError())
        reason = "error"
    while engine.step(time.monotonic() + 2000 if reason == "deadline" else None):
        pass
    drain.join(30)
    assert not drain.is_alive()
    ((timings, observers, statistics),) = told
    assert (timings, observers) == ([0, 1], 2)
    assert (statistics.running, statistics.pages_used) == (0, 0)
    assert [event.finish_reason for event in handle if event.finish_reason] == [reason] * 2
    engine.check()
