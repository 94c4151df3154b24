"""Messages to an engine whose thread is computing."""

import pytest

from tiny_llm.errors import Draining, QueueFull

from ..support.engine_requests import PROMPTS, alone, computing, read, request_of


def test_nobody_waits_for_a_step(llm, monkeypatch):
    with computing(llm, monkeypatch) as (engine, first, gate):
        second, third = (engine.submit(request_of(llm, prompt)) for prompt in PROMPTS[1:3])
        second.cancel()
        assert engine.statistics().waiting == 2
        assert not engine.drain(timeout=0)
        with pytest.raises(Draining):
            engine.submit(request_of(llm, PROMPTS[0]))
        gate.set()
        assert read(second) == [("", (), "cancelled")]
        assert [read(first), read(third)] == [alone(llm, PROMPTS[0]), alone(llm, PROMPTS[2])]
        assert engine.drain(timeout=30)


def test_messages_that_are_not_read_count_as_waiting(llm, monkeypatch):
    with computing(llm, monkeypatch, max_waiting=2) as (engine, first, gate):
        handles = [first, *(engine.submit(request_of(llm, PROMPTS[1])) for _ in range(2))]
        with pytest.raises(QueueFull):
            engine.submit(request_of(llm, PROMPTS[1]))
        gate.set()
        assert [read(handle)[0][2] for handle in handles] == [alone(llm, PROMPTS[0])[0][2]] + [
            alone(llm, PROMPTS[1])[0][2]
        ] * 2
