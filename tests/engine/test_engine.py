"""Requests that share an engine get what they get alone, whatever happens to the others."""

import threading

import mlx.core as mx
import pytest

from tiny_llm.engine import Engine, EngineRequest
from tiny_llm.errors import ArgumentError, Draining, QueueFull
from tiny_llm.sampling.params import Sampling

PROMPTS = [
    "Once upon a time",
    "What is FlashAttention?",
    "The quick brown fox jumps over the lazy dog, and then " * 8,
    "a",
    "Who are you? " * 20,
]


def ids_of(llm, prompt):
    return llm.tokenizer.encode(prompt)


def request_of(llm, prompt, max_tokens=24, **options):
    sampling = Sampling(max_tokens=max_tokens, **options.pop("sampling", {}))
    return EngineRequest(prompt_ids=ids_of(llm, prompt), sampling=sampling, **options)


def read(handle):
    """Texts, tokens and reasons of all answers."""
    texts, tokens, reasons = ([""] * handle.choices, [()] * handle.choices, [None] * handle.choices)
    for event in handle:
        assert reasons[event.choice] is None
        texts[event.choice] += event.text
        tokens[event.choice] += event.token_ids
        reasons[event.choice] = event.finish_reason
    return list(zip(texts, tokens, reasons, strict=True))


def alone(llm, prompt, max_tokens=24, **options):
    result = llm.generate(prompt, max_tokens=max_tokens, **options)
    return [(result.text, result.token_ids, result.finish_reason)]


def assert_at_rest(engine):
    assert engine.drain(timeout=10)
    statistics = engine.statistics()
    assert (statistics.running, statistics.waiting, statistics.pages_used) == (0, 0, 0)


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
        assert_at_rest(engine)


def test_a_prompt_seen_before_is_found_in_its_pages(llm, engine):
    prompt = PROMPTS[2]
    cold = engine.submit(request_of(llm, prompt))
    first = read(cold)
    warm = engine.submit(request_of(llm, prompt))
    assert read(warm) == first
    length = len(ids_of(llm, prompt))
    assert (cold.cached_tokens, warm.cached_tokens) == (0, (length - 1) // 8 * 8)
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


def test_a_deadline_ends_a_request(llm, engine):
    request = request_of(llm, PROMPTS[0], 400, deadline=0.05, sampling={"ignore_eos": True})
    ((_, tokens, reason),) = read(engine.submit(request))
    assert reason == "deadline"
    assert len(tokens) < 400


def test_a_stop_string_ends_an_answer(llm, engine):
    request = request_of(llm, PROMPTS[0], 24, sampling={"stop": "time"})
    assert read(engine.submit(request)) == alone(llm, PROMPTS[0], stop="time")


def test_a_step_that_fails_ends_the_running_requests_only(llm, engine, monkeypatch):
    logits = engine._runner.logits
    failing = threading.Event()

    def fail_once(plan):
        if failing.is_set():
            failing.clear()
            raise MemoryError("no room")
        return logits(plan)

    monkeypatch.setattr(engine._runner, "logits", fail_once)
    victim = engine.submit(request_of(llm, PROMPTS[0], 400, sampling={"ignore_eos": True}))
    next(victim)
    failing.set()
    events = list(victim)
    assert events[-1].finish_reason == "error"
    assert isinstance(events[-1].error, MemoryError)
    assert read(engine.submit(request_of(llm, PROMPTS[2]))) == alone(llm, PROMPTS[2])
    assert_at_rest(engine)


def test_logits_of_nan_fail_one_answer_alone(llm, engine, monkeypatch):
    logits = engine._runner.logits

    def spoil(plan):
        given = logits(plan)
        rows = [
            number
            for number, row in enumerate(row for row in plan.rows if row.logits)
            if row.state.id == "bad"
        ]
        return given.at[mx.array(rows)].add(mx.nan) if rows else given

    monkeypatch.setattr(engine._runner, "logits", spoil)
    bad = engine.submit(request_of(llm, PROMPTS[1], id="bad"))
    good = engine.submit(request_of(llm, PROMPTS[0]))
    assert list(bad)[-1].finish_reason == "error"
    assert read(good) == alone(llm, PROMPTS[0])
    assert_at_rest(engine)


def test_too_many_requests_are_refused(llm):
    with Engine(llm, max_context=512, max_running=1, max_waiting=1, page_size=8) as engine:
        first = engine.submit(request_of(llm, PROMPTS[0], 300, sampling={"ignore_eos": True}))
        next(first)
        second = engine.submit(request_of(llm, PROMPTS[1]))
        with pytest.raises(QueueFull, match="queue of 1 waiting requests is full"):
            engine.submit(request_of(llm, PROMPTS[1]))
        first.cancel()
        assert read(second) == alone(llm, PROMPTS[1])


def test_a_draining_engine_finishes_and_accepts_nothing(llm, engine):
    handle = engine.submit(request_of(llm, PROMPTS[0]))
    assert engine.drain(timeout=10)
    with pytest.raises(Draining):
        engine.submit(request_of(llm, PROMPTS[1]))
    assert read(handle) == alone(llm, PROMPTS[0])


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
        ({"prompt_ids": [5], "n": 17}, "choices: got 17, expected at most 16"),
    ],
)
def test_what_can_never_run_is_refused_at_once(engine, options, message):
    with pytest.raises(ArgumentError, match=message):
        engine.submit(EngineRequest(**options))
    assert_at_rest(engine)


def test_observers_see_the_timings_of_each_answer(llm, engine):
    seen = []
    engine.observe(seen.append)
    read(engine.submit(request_of(llm, PROMPTS[0], 5, n=2)))
    assert engine.drain(timeout=10)
    assert [(each.finish_reason, each.generated_tokens) for each in seen] == [("length", 5)] * 2
    for each in seen:
        assert 0 <= each.queue_seconds <= each.first_token_seconds <= each.seconds


def test_asyncio_reads_many_requests_in_one_thread(llm, engine):
    import asyncio

    async def answer(prompt):
        return "".join([event.text async for event in engine.submit(request_of(llm, prompt))])

    async def all_answers():
        return await asyncio.gather(*map(answer, PROMPTS))

    assert asyncio.run(all_answers()) == [alone(llm, prompt)[0][0] for prompt in PROMPTS]
