"""A handle: its events in order, and what is called at its end."""

from tiny_llm.engine import Event
from tiny_llm.engine.handle import Handle


def test_what_is_called_at_the_end_is_called_once_and_at_once_if_it_has_ended():
    handle, ends = Handle("", 1, 2, lambda: None), []
    handle.call_at_end(lambda: ends.append("early"))
    handle.put(Event(0, finish_reason="stop"))
    handle.put(Event(1, "a"))
    assert ends == []
    handle.put(Event(1, finish_reason="length"))
    assert ends == ["early"]
    handle.call_at_end(lambda: ends.append("late"))
    assert ends == ["early", "late"]
    assert [event.choice for event in handle] == [0, 1, 1]
