"""Calls that an answer may have: strict functions, beside a format, cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ...support.serving import chat_models
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.grammars import follows
from ...support.serving.running import RunningServer, running
from ..test_tools import CALL, NEWS, TEMPLATE, TOOL, say


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running(FakeEngine(tokenizer=chat_models.tokenizer_with(TEMPLATE))) as started:
        yield started


NUMBERED = '<tool_call>\n{"name": "weather", "arguments": {"city": 5}}\n</tool_call>'
UNKNOWN = NEWS.replace("news", "sports")
STRICT = {"type": "function", "function": {**TOOL["function"], "strict": True}}
LOOSE = {"type": "function", "function": {"name": "news", "parameters": TOOL["function"]["parameters"]}}
JSON_FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "x", "schema": {"type": "object", "properties": {}}},
}


def test_strict_functions_are_called_with_their_arguments_or_not_at_all(server: RunningServer) -> None:
    """From the begin of a call on; before it, between calls and without one, the text is free."""
    choice, _ = say(server, f"I look.\n{CALL}", tools=[STRICT, LOOSE])
    assert (choice["message"]["content"], choice["finish_reason"]) == ("I look.", "tool_calls")
    grammar = server.engine.requests[-1].grammar
    loose = NEWS.replace("{}", '{"city": 5}')
    for text in (
        "",
        "Hello <b>",
        "a <tool_",
        CALL,
        loose,
        f"I look.\n{CALL}",
        f"{CALL}\n{loose} So?\n{CALL}",
    ):
        assert follows(grammar, text)
    for text in (
        NUMBERED,
        UNKNOWN,
        "<tool_call>",
        f"I look.\n{NUMBERED}",
        f"{CALL}{CALL[:-9]}",
        f"{CALL}{UNKNOWN}",
    ):
        assert not follows(grammar, text)
    say(server, CALL, tools=[LOOSE])
    assert server.engine.requests[-1].grammar is None


def test_strict_functions_after_reasoning(server: RunningServer) -> None:
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    thought = "<think>\nA <tool_call> or not?\n</think>\n\n"
    choice, _ = say(server, f"{thought}{CALL}", tools=[STRICT], **thinking)
    assert choice["message"]["reasoning_content"] == "A <tool_call> or not?"
    assert len(choice["message"]["tool_calls"]) == 1
    grammar = server.engine.requests[-1].grammar
    for text in (CALL, "No.", f"I look.{CALL}"):
        assert follows(grammar, thought + text)
    assert not follows(grammar, thought + NUMBERED)


@pytest.mark.parametrize("tool", [STRICT, {"type": "function", "function": {"name": "weather"}}])
def test_beside_a_format_an_answer_is_a_call_or_has_the_format(
    server: RunningServer, tool: dict[str, Any]
) -> None:
    say(server, CALL, tools=[tool], response_format=JSON_FORMAT)
    grammar = server.engine.requests[-1].grammar
    texts = {CALL: True, f"{CALL}\n{CALL}": True, "{}": True, "Hello": False, "I look.\n" + CALL: False}
    texts[NUMBERED] = tool is not STRICT
    assert {text: follows(grammar, text) for text in texts} == texts
    say(server, CALL, tools=[tool], response_format=JSON_FORMAT, parallel_tool_calls=False)
    assert not follows(server.engine.requests[-1].grammar, f"{CALL}\n{CALL}")


def test_a_call_that_is_cut_is_not_content(server: RunningServer) -> None:
    tokens = len(server.engine.tokenizer.encode(CALL, add_special_tokens=False))
    for limit in range(1, tokens):
        choice, events = say(server, CALL, tools=[TOOL], tool_choice="required", max_tokens=limit)
        assert choice["message"]["content"] == ""
        assert choice["finish_reason"] == "length"
        deltas = [part["delta"] for event in events for part in event["choices"]]
        assert [delta for delta in deltas if delta.get("content") or "tool_calls" in delta] == []
    choice, _ = say(server, CALL, tools=[TOOL], tool_choice="required", stop="Paris")
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")
