"""Requests that share an engine get what they get alone, whatever happens to the others."""

import asyncio
import inspect
import threading
import time

import mlx.core as mx
import pytest

from tiny_llm.engine import Engine, EngineRequest
from tiny_llm.engine import engine as engine_module
from tiny_llm.engine.answers import Answers
from tiny_llm.engine.statistics import Recorder
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


def test_an_engine_at_rest_is_woken_by_a_request_and_by_its_end(llm, monkeypatch):
    """It does not find out when it looks for deadlines and says that it is alive."""
    monkeypatch.setattr(engine_module, "IDLE_BEAT", 1000.0)
    engine, resting = Engine(llm, max_context=64), threading.Event()
    wait = engine._mailbox._changed.wait
    monkeypatch.setattr(
        engine._mailbox._changed, "wait", lambda timeout=None: (resting.set(), wait(timeout))[1]
    )
    for _ in range(2):
        resting.clear()
        ended = threading.Event()
        engine.submit(request_of(llm, PROMPTS[0], 2)).call_at_end(ended.set)
        assert ended.wait(30)
        assert resting.wait(30)
    closing = threading.Thread(target=engine.close, daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()


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


def test_requests_are_changed_only_by_the_thread_of_the_engine(llm, engine, monkeypatch):
    """From their submission to their end; other threads leave messages, and read."""
    called, elsewhere = set(), set()

    def watched(name, method):
        def call(*arguments, **options):
            called.add(name)
            if threading.current_thread() is not engine._thread:
                elsewhere.add(name)
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
    assert elsewhere == {"Recorder.statistics", "Scheduler.check_fits"}
    assert {"Answers.publish", "Answers.cancel", "Scheduler.discard", "Recorder.statistics"} <= called


def test_asyncio_reads_many_requests_in_one_thread(llm, engine):
    async def answer(prompt):
        return "".join([event.text async for event in engine.submit(request_of(llm, prompt))])

    async def all_answers():
        return await asyncio.gather(*map(answer, PROMPTS))

    assert asyncio.run(all_answers()) == [alone(llm, prompt)[0][0] for prompt in PROMPTS]
