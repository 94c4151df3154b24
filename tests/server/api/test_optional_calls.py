"""Calls that an answer may have: strict functions, beside a format, cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tiny_llm.sampling.grammar import start_grammar

from ...support.serving import chat_models
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.grammars import follows
from ...support.serving.running import RunningServer, running
from .test_tools import CALL, NEWS, TEMPLATE, TOOL, say

TOKENIZERS = {"text": chat_models.tokenizer_with, "tokens": chat_models.tokenizer_with_tags}


@pytest.fixture(scope="module", params=TOKENIZERS)
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """Tags such as <tool_call> are text, or a token."""
    with running(FakeEngine(tokenizer=TOKENIZERS[request.param](TEMPLATE))) as started:
        yield started


def follows_last(server: RunningServer, text: str) -> bool:
    """Whether the answer to the last request may be this text."""
    return follows(server.engine.requests[-1].grammar, text, server.engine.tokenizer)


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
    loose = NEWS.replace("{}", '{"city": 5}')
    allowed = ["", "Hello <b>", "a <tool_", CALL, loose, f"I look.\n{CALL}", f"{CALL}\n{loose} So?\n{CALL}"]
    others = [NUMBERED, UNKNOWN, "<tool_call>", f"I look.\n{NUMBERED}", CALL + CALL[:-9], CALL + UNKNOWN]
    assert [text for text in allowed + others if follows_last(server, text)] == allowed
    say(server, CALL, tools=[LOOSE])
    assert server.engine.requests[-1].grammar is None


def test_strict_functions_after_reasoning(server: RunningServer) -> None:
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    thought = "<think>\nA <b>call</b> or not?\n</think>\n\n"
    choice, _ = say(server, f"{thought}{CALL}", tools=[STRICT], **thinking)
    assert choice["message"]["reasoning_content"] == "A <b>call</b> or not?"
    assert len(choice["message"]["tool_calls"]) == 1
    for text in (CALL, "No.", f"I look.{CALL}"):
        assert follows_last(server, thought + text)
    assert not follows_last(server, thought + NUMBERED)


def test_a_required_call_is_written_in_the_tokens_of_the_model(server: RunningServer) -> None:
    say(server, CALL, tools=[STRICT], tool_choice="required")
    assert follows_last(server, CALL)
    tokenizer = server.engine.tokenizer
    state = start_grammar(tokenizer, server.engine.requests[-1].grammar)
    begin = state.forced()
    assert tokenizer.decode(begin).startswith('<tool_call>\n{"name": "weather", "arguments": {')
    assert begin[0] == tokenizer.encode(CALL, add_special_tokens=False)[0]
    state.accept(begin)


@pytest.mark.parametrize("tool", [STRICT, {"type": "function", "function": {"name": "weather"}}])
def test_beside_a_format_an_answer_is_a_call_or_has_the_format(
    server: RunningServer, tool: dict[str, Any]
) -> None:
    say(server, CALL, tools=[tool], response_format=JSON_FORMAT)
    texts = {CALL: True, f"{CALL}\n{CALL}": True, "{}": True, "Hello": False, "I look.\n" + CALL: False}
    texts[NUMBERED] = tool is not STRICT
    assert {text: follows_last(server, text) for text in texts} == texts
    say(server, CALL, tools=[tool], response_format=JSON_FORMAT, parallel_tool_calls=False)
    assert not follows_last(server, f"{CALL}\n{CALL}")


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
