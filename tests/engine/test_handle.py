"""A handle: its events in order, and what is called at its end."""

import asyncio
import threading

import pytest

from tiny_llm.engine import Event
from tiny_llm.engine import request as request_module
from tiny_llm.engine.request import Handle


def test_what_is_called_at_the_end_is_called_once_and_at_once_if_it_has_ended():
    handle, ends = Handle("", 1, 2, lambda handle: None, 0.0), []
    handle.call_at_end(lambda: ends.append("early"))
    handle.put(Event(0, finish_reason="stop"))
    handle.put(Event(1, "a"))
    assert ends == []
    handle.put(Event(1, finish_reason="length"))
    assert ends == ["early"]
    handle.call_at_end(lambda: ends.append("late"))
    assert ends == ["early", "late"]
    assert [event.choice for event in handle] == [0, 1, 1]


def test_the_end_wakes_a_reader_and_calls_what_waits_for_it():
    handle, ends = Handle("", 1, 1, lambda handle: None, 0.0), []
    handle.call_at_end(lambda: ends.append("told"))

    async def read():
        reader = asyncio.ensure_future(anext(handle))
        await asyncio.sleep(0)
        handle.put(Event(0, "a", finish_reason="stop"))
        return await asyncio.wait_for(reader, 10)

    assert asyncio.run(read()).text == "a"
    assert ends == ["told"]


@pytest.mark.parametrize("has_ended", [False, True])
def test_another_thread_can_read_while_the_end_is_told(has_ended):
    handle, seen = Handle("", 1, 1, lambda handle: None, 0.0), []
    reader = threading.Thread(target=lambda: seen.extend(handle), daemon=True)

    def read():
        reader.start()
        reader.join(10)
        seen.append("told")

    if not has_ended:
        handle.call_at_end(read)
    handle.put(Event(0, "a", finish_reason="stop"))
    if has_ended:
        handle.call_at_end(read)
    assert [getattr(each, "text", each) for each in seen] == ["a", "told"]


def test_an_event_after_its_reader_and_the_loop_have_gone_waits_for_the_next_reader():
    handle = Handle("", 1, 1, lambda handle: None, 0.0)

    async def leave() -> None:
        reader = asyncio.ensure_future(anext(handle))
        await asyncio.sleep(0)
        reader.cancel()

    asyncio.run(leave())
    handle.put(Event(0, "a", finish_reason="stop"))
    assert [event.text for event in handle] == ["a"]


def test_an_event_that_comes_while_its_reader_begins_to_wait_is_not_missed(monkeypatch):
    handle, waker = Handle("", 1, 1, lambda handle: None, 0.0), request_module._waker
    engine = threading.Thread(target=handle.put, args=(Event(0, "a", finish_reason="stop"),), daemon=True)

    def put_meanwhile(loop, arrived):
        engine.start()
        engine.join(0.05)  # the lock keeps it from its end
        return waker(loop, arrived)

    monkeypatch.setattr(request_module, "_waker", put_meanwhile)

    async def read():
        return await asyncio.wait_for(anext(handle), 10)

    assert asyncio.run(read()).text == "a"


def test_cancelling_asks_the_engine_until_the_last_answer_has_ended():
    """A reader that leaves after the end does not wait for the engine's lock."""
    asked = []
    handle = Handle("", 1, 2, asked.append, 0.0)
    for choice in range(2):
        handle.cancel()
        handle.put(Event(choice, finish_reason="stop"))
    assert asked == [handle, handle]
    handle.cancel()
    assert asked == [handle, handle]
