"""Streams and single answers: when their engine starts and ends, and what they say of themselves."""

import gc
import os
import threading
import time

import pytest

from tiny_llm import LLM, ChatSession, Sampling
from tiny_llm.engine import Engine, EngineRequest
from tiny_llm.engine import batch as engine_batch
from tiny_llm.errors import StepFailed
from tiny_llm.runtime.device import TURNS
from tiny_llm.scheduler import Scheduler

from ..support.serving.running import wait_until

LONG = Sampling(max_tokens=900, ignore_eos=True)
STORY = "Once upon a time"


@pytest.fixture
def engines(monkeypatch):
    """Those that calls make."""
    made = []

    def make(*given, **options):
        made.append(Engine(*given, **options))
        return made[-1]

    monkeypatch.setattr(engine_batch, "Engine", make)
    return made


def test_nothing_is_computed_before_the_first_piece(cpu_llm, engines):
    stream = cpu_llm.stream(STORY, LONG)
    assert engines == []
    assert next(stream)
    assert len(engines) == 1
    stream.close()
    assert engines[0]._stopped.is_set()
    assert list(stream) == []


def test_a_dropped_stream_ends_without_a_wait(cpu_llm, engines):
    """The garbage collector may run in a thread with a lock that the engine's thread needs."""
    streams = [cpu_llm.stream(STORY, LONG) for _ in range(2)]
    cycle = [streams[0]]
    cycle.append(cycle)
    for stream in streams:
        next(stream)
    del streams[0], cycle, stream
    with TURNS._changed:
        gc.collect()
        streams.clear()
    for engine in engines:
        wait_until(engine._stopped.is_set)


def test_a_dropped_session_ends_its_engine(cpu_llm, engines):
    session = ChatSession(cpu_llm)
    stream = session.stream("Who are you?", max_tokens=900)
    next(stream)
    del session
    assert not engines[0]._mailbox.closed
    del stream
    gc.collect()
    wait_until(engines[0]._stopped.is_set)


@pytest.mark.parametrize("end", [lambda stream: stream.close(), lambda stream: stream.__del__(), gc.collect])
def test_a_forked_child_has_nothing_to_end(cpu_llm, end):
    """It has no thread of the engine, for which it would wait forever."""
    stream = cpu_llm.stream(STORY, LONG)
    next(stream)
    child = os.fork()
    if child == 0:
        try:
            end(stream) if end is not gc.collect else end()
            stream._engine.close()
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    stream.close()


def test_another_thread_may_close_a_stream_that_is_read(cpu_llm):
    stream = cpu_llm.stream(STORY, LONG)
    next(stream)
    pieces = []
    reader = threading.Thread(target=lambda: pieces.extend(stream))
    reader.start()
    stream.close()
    reader.join(20)
    assert not reader.is_alive()
    assert stream.result.finish_reason is None
    assert stream.result.statistics.generated_tokens < 900


def test_the_statistics_leave_out_the_time_of_the_reader(cpu_llm):
    stream = cpu_llm.stream(STORY, Sampling(max_tokens=12, ignore_eos=True))
    begin = time.monotonic()
    next(stream)
    taken = time.monotonic() - begin
    for _ in range(5):
        time.sleep(0.1)
        next(stream)
    assert 0 < stream.result.statistics.time_to_first_token <= taken
    assert 0 < stream.result.statistics.decode_seconds < 0.4
    stream.close()


def test_the_steps_of_one_answer_start_ahead(cpu_llm, monkeypatch):
    """All that decode but the first and the last, also in its last page."""
    plan_ahead, planned = Scheduler.plan_ahead, []
    monkeypatch.setattr(Scheduler, "plan_ahead", lambda each: planned.append(plan_ahead(each)) or planned[-1])
    result = cpu_llm.generate(STORY, Sampling(max_tokens=40, ignore_eos=True))
    assert result.statistics.generated_tokens == 1 + len(planned) == 40
    assert [plan is None for plan in planned] == [False] * 38 + [True]


def test_ctrl_c_while_an_engine_starts_leaves_none(cpu_llm, monkeypatch):
    made, wait = [], threading.Event.wait

    def interrupted(event, timeout=None):
        if made and event is made[0]._ready:
            raise KeyboardInterrupt
        return wait(event, timeout)

    start = Engine._start
    monkeypatch.setattr(Engine, "_start", lambda engine: (made.append(engine), start(engine)))
    monkeypatch.setattr(threading.Event, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cpu_llm.generate(STORY)
    wait_until(made[0]._stopped.is_set)


def test_progress_is_reported_before_and_after_each_chunk(cpu_llm):
    reports = []
    prompt = cpu_llm.tokenizer.encode(STORY) * 10
    with Engine(cpu_llm, step_tokens=64, max_running=1) as engine:
        request = EngineRequest(
            prompt_ids=prompt * 3,
            sampling=Sampling(max_tokens=3),
            progress=lambda *done: reports.append(done),
        )
        list(engine.submit(request))
    total = len(prompt) * 3
    assert reports == [(done, total) for done in (*range(0, total, 64), total)]


def test_a_progress_function_that_fails_ends_its_own_answer_only(cpu_llm):
    with Engine(cpu_llm) as engine:
        prompt = cpu_llm.tokenizer.encode(STORY)
        other = engine.submit(EngineRequest(prompt_ids=prompt, sampling=Sampling(max_tokens=9)))
        failing = EngineRequest(prompt_ids=prompt, progress=lambda *done: 1 / 0)
        *_, last = engine.submit(failing)
        assert isinstance(last.error, StepFailed)
        assert [event.error for event in other] == [None] * 9
        assert not engine.failed


def test_a_fault_in_a_step_is_a_step_failed(monkeypatch):
    llm = LLM("tiny", dtype="float32", device="cpu")
    monkeypatch.setattr(llm.model, "score", lambda *_: 1 / 0)
    for ask in (llm.generate, llm.chat, lambda text: "".join(llm.stream(text))):
        with pytest.raises(StepFailed, match="ZeroDivisionError"):
            ask(STORY)
