"""Requests that share an engine get what they get alone, whatever happens to the others."""

import asyncio
import inspect
import threading
import time

import mlx.core as mx
import pytest

from tiny_llm.engine import Engine, EngineRequest
from tiny_llm.engine.answers import Answers
from tiny_llm.engine.recorder import Recorder
from tiny_llm.errors import ArgumentTypeError
from tiny_llm.runtime.device import TURNS
from tiny_llm.sampling.params import Sampling
from tiny_llm.scheduler import Scheduler

from ..support.engine_requests import PROMPTS, alone, assert_at_rest, ids_of, read, request_of
from ..support.stepped_engine import stepped_engine


def test_requests_at_once_get_the_tokens_that_they_get_alone(llm, engine):
    handles = [engine.submit(request_of(llm, prompt)) for prompt in PROMPTS * 2]
    assert [read(handle) for handle in handles] == [alone(llm, prompt) for prompt in PROMPTS] * 2
    assert_at_rest(engine)


def test_a_full_pool_preempts_and_changes_nothing(llm):
    page = 2 * 8 * 2 * 128 * 8 * 4  # keys and values, layers, heads, head size, tokens, bytes
    with Engine(
        llm, kv_memory=36 * page, max_context=160, step_tokens=32, max_running=8, page_size=8
    ) as engine:
        handles = [engine.submit(request_of(llm, prompt, 60)) for prompt in PROMPTS[:2] * 4]
        answers = [read(handle) for handle in handles]
        assert engine.statistics().preemptions > 0
        assert answers == [alone(llm, prompt, 60) for prompt in PROMPTS[:2]] * 4
        prompt_tokens = sum(len(ids_of(llm, prompt)) for prompt in PROMPTS[:2])
        assert engine.statistics().prompt_tokens == 4 * prompt_tokens  # once, also those computed again
        assert all(handle.cached_tokens < handle.prompt_tokens for handle in handles)  # as at the first start
        assert_at_rest(engine)


def test_a_prompt_seen_before_is_found_in_its_pages(llm, engine):
    prompt = PROMPTS[2]
    cold = engine.submit(request_of(llm, prompt))
    first = read(cold)
    warm = engine.submit(request_of(llm, prompt))
    assert read(warm) == first
    length = len(ids_of(llm, prompt))
    assert (cold.cached_tokens, warm.cached_tokens) == (0, (length - 1) // 8 * 8)
    statistics = engine.statistics()
    assert (statistics.prefix_queries, statistics.prefix_hits) == (2 * length, warm.cached_tokens)
    assert statistics.steps == len(statistics.step_tokens)
    other = engine.submit(request_of(llm, prompt, salt="another"))
    assert read(other) == first
    assert other.cached_tokens == 0


def test_several_answers_to_a_prompt_share_its_computation(llm, engine):
    request = request_of(llm, PROMPTS[0], n=4, sampling={"temp": 1.5, "seed": 3})
    answers = read(engine.submit(request))
    assert len({text for text, *_ in answers}) > 1
    assert read(engine.submit(request)) == answers
    assert_at_rest(engine)


def test_seeded_answers_do_not_depend_on_others(llm, engine):
    request = request_of(llm, PROMPTS[1], sampling={"temp": 1.0, "top_p": 0.9, "seed": 11})
    expected = read(engine.submit(request))
    others = [engine.submit(request_of(llm, prompt)) for prompt in PROMPTS]
    again = engine.submit(request)
    assert read(again) == expected
    for handle in others:
        read(handle)


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


def test_drafts_change_no_answer(llm):
    prompt = "one two three four. " * 12
    requests = [
        request_of(llm, prompt, 40, logprobs=2, sampling={"ignore_eos": True}),
        request_of(llm, prompt, 40, sampling={"temp": 0.7, "seed": 5, "stop": "four. one"}),
    ]
    answers = []
    for lookup in (True, False):
        with Engine(llm, max_context=512, page_size=8, lookup=lookup) as engine:
            answers.append([read(engine.submit(request)) for request in requests])
            assert (engine.statistics().accepted_tokens > 0) == lookup
    assert answers[0] == answers[1]


def test_an_engine_holds_its_device_for_a_step_only(llm, engine):
    """The second device is a number: nothing is computed on it."""
    endless = engine.submit(request_of(llm, PROMPTS[1], 400, sampling={"ignore_eos": True}))
    next(endless)
    entered = threading.Event()

    def compute_elsewhere():
        with TURNS.on(mx.Device(mx.cpu, 1)):
            entered.set()

    other = threading.Thread(target=compute_elsewhere, daemon=True)
    other.start()
    other.join(30)
    assert entered.is_set()
    endless.cancel()
    assert read(engine.submit(request_of(llm, PROMPTS[0]))) == alone(llm, PROMPTS[0])


def test_engines_of_different_settings_run_at_the_same_time(llm, engine):
    with Engine(llm, max_context=256, step_tokens=16, max_running=2, prefix_cache=False) as other:
        handles = [each.submit(request_of(llm, prompt)) for prompt in PROMPTS for each in (engine, other)]
        expected = [alone(llm, prompt) for prompt in PROMPTS for _ in range(2)]
        assert [read(handle) for handle in handles] == expected


def test_cancelling_a_request_ends_all_its_answers(llm, engine):
    handle = engine.submit(request_of(llm, PROMPTS[0], 400, n=3, sampling={"ignore_eos": True}))
    next(handle)
    handle.cancel()
    reasons = [event.finish_reason for event in handle if event.finish_reason]
    assert reasons == ["cancelled"] * 3
    assert_at_rest(engine)


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


def test_a_step_has_room_for_a_long_prompt_and_for_each_answer_that_runs(llm):
    """By default."""
    for options in ({}, {"max_running": 600}):
        with Engine(llm, **options) as engine:
            read(engine.submit(EngineRequest(prompt_ids=[5] * 500, sampling=Sampling(max_tokens=1))))
            assert engine.statistics().step_tokens == (500,)


def test_observers_see_the_timings_of_each_answer(llm, engine):
    seen = []
    engine.observe(seen.append)
    read(engine.submit(request_of(llm, PROMPTS[0], 5, n=2)))
    assert engine.drain(timeout=10)
    assert [(each.finish_reason, each.generated_tokens) for each in seen] == [("length", 5)] * 2
    for each in seen:
        assert 0 <= each.queue_seconds <= each.first_token_seconds <= each.seconds


def test_the_first_token_has_a_time_of_its_own():
    engine, begin = stepped_engine(8, 4, max_running=2), time.monotonic()
    handle = engine.submit(request_of(engine.llm, "abc", 4, sampling={"ignore_eos": True}))
    while not handle._events:
        assert engine.step()
    first = time.monotonic()
    while engine.step():
        pass
    assert 0 < handle.timings[0].first_token_seconds <= first - begin < handle.timings[0].seconds


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
    while not engine._closing:  # then it has the lock until it waits
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


def test_an_engine_without_work_is_alive():
    engine = stepped_engine(8, 4, max_running=2)
    now = time.monotonic() + 1000
    assert not engine.step(now)
    assert engine.statistics().last_step_at == now


def test_an_engine_whose_step_takes_too_long_is_not_alive():
    engine = stepped_engine(8, 4, max_running=2)
    assert not engine.step(time.monotonic() - 100)
    assert (engine.alive(60), engine.alive(200)) == (False, True)
    with pytest.raises(ArgumentTypeError, match="max_age: got a str, expected a number"):
        engine.alive("60")


def test_requests_are_changed_only_with_the_lock(llm, engine, monkeypatch):
    """From their submission to their end, and by each thread."""
    called, unlocked = set(), set()

    def watched(name, method):
        def call(*arguments, **options):
            called.add(name)
            if not engine._changed._is_owned():
                unlocked.add(name)
            return method(*arguments, **options)

        return call

    for owner in (Answers, Recorder, Scheduler):
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_"):
                monkeypatch.setattr(owner, name, watched(f"{owner.__name__}.{name}", method))
    cancelled = engine.submit(request_of(llm, PROMPTS[1], 400, sampling={"ignore_eos": True}))
    next(cancelled)
    cancelled.cancel()
    read(engine.submit(request_of(llm, PROMPTS[0], 4, n=2)))
    engine.statistics()
    with monkeypatch.context() as patch:
        patch.setattr(engine._steps.runner, "logits", lambda plan: 1 / 0)
        read(engine.submit(request_of(llm, PROMPTS[0])))
    engine.close()
    assert unlocked == set()
    assert {"Answers.publish", "Answers.cancel", "Scheduler.discard", "Recorder.statistics"} <= called


def test_asyncio_reads_many_requests_in_one_thread(llm, engine):
    async def answer(prompt):
        return "".join([event.text async for event in engine.submit(request_of(llm, prompt))])

    async def all_answers():
        return await asyncio.gather(*map(answer, PROMPTS))

    assert asyncio.run(all_answers()) == [alone(llm, prompt)[0][0] for prompt in PROMPTS]
