"""Tools, thinking and grammars: what reaches the template and the engine, and what comes back."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tiny_llm.sampling.grammar import Grammar

from ..support.serving import chat_models
from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import SECONDS, RunningServer, running, wait_until

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TEMPLATE = chat_models.TOOLS + chat_models.MESSAGES + chat_models.THINKING


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    engine = FakeEngine(tokenizer=chat_models.tokenizer_with(TEMPLATE))
    with running(engine) as started:
        yield started


def say(server: RunningServer, script: str, **fields: Any) -> tuple[Any, list[Any]]:
    """The choice of a whole answer that says `script`, and the chunks of a stream."""
    server.engine.script = script
    fields = {"max_tokens": 400, **fields}
    return server.chat(**fields).record["choices"][0], server.chat(**fields, stream=True).events


def prompt(server: RunningServer) -> str:
    return server.engine.tokenizer.decode(server.engine.requests[-1].prompt_ids)


def test_a_call_comes_back_as_one(server: RunningServer) -> None:
    choice, events = say(server, f"I look.\n{CALL}", tools=[TOOL])
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "I look."
    (call,) = choice["message"]["tool_calls"]
    assert call["type"] == "function"
    assert call["function"] == {"name": "weather", "arguments": '{"city":"Paris"}'}
    deltas = [part["delta"] for event in events for part in event["choices"]]
    (streamed,) = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert streamed["index"] == 0
    assert streamed["function"] == call["function"]
    assert "".join(delta.get("content", "") for delta in deltas) == "I look."
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert json.dumps(TOOL["function"]["name"]) in prompt(server)


def test_an_answer_without_words_has_no_content(server: RunningServer) -> None:
    choice, _ = say(server, CALL + CALL, tools=[TOOL])
    assert choice["message"]["content"] is None
    assert len({call["id"] for call in choice["message"]["tool_calls"]}) == 2


def test_calls_are_text_if_the_request_has_no_tools_or_forbids_them(server: RunningServer) -> None:
    for fields in ({}, {"tools": [TOOL], "tool_choice": "none"}):
        choice, _ = say(server, CALL, **fields)
        assert choice["message"]["content"] == CALL
        assert "weather" not in prompt(server)


def test_earlier_calls_and_results_reach_the_template(server: RunningServer) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "sunny"},
    ]
    say(server, "Sunny.", messages=messages, tools=[TOOL])
    assert '"arguments": {"city": "Rome"}' in prompt(server)
    assert "<|im_start|>tool\nsunny" in prompt(server)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_call_cannot_be_forced(server: RunningServer, choice: Any) -> None:
    answer = server.chat(tools=[TOOL], tool_choice=choice)
    assert (answer.status, answer.error["param"]) == (400, "tool_choice")


def test_the_number_of_calls_cannot_be_limited(server: RunningServer) -> None:
    answer = server.chat(tools=[TOOL], parallel_tool_calls=False)
    assert (answer.status, answer.record["error"]["param"]) == (400, "parallel_tool_calls")
    assert server.chat(tools=[TOOL], parallel_tool_calls=True).status == 200


def test_the_number_of_tools_has_a_limit(server: RunningServer) -> None:
    assert server.chat(tools=[TOOL] * 10).status == 200
    answer = server.chat(tools=[TOOL] * 200)
    assert (answer.status, answer.error["message"]) == (400, "tools: expected at most 128")


def test_reasoning_is_apart_from_the_answer(server: RunningServer) -> None:
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    choice, events = say(server, "<think>\nHm.\n</think>\n\nYes.", **thinking)
    message = choice["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Yes.")
    deltas = [part["delta"] for event in events for part in event["choices"]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Hm."
    assert "".join(delta.get("content", "") for delta in deltas) == "Yes."
    assert "<think>" not in prompt(server)


def test_without_thinking_nothing_is_split(server: RunningServer) -> None:
    choice, _ = say(server, "<think>a</think>b")
    assert choice["message"]["content"] == "<think>a</think>b"
    assert "<think>\n\n</think>" in prompt(server)


def test_a_template_that_begins_the_reasoning() -> None:
    template = chat_models.MESSAGES + chat_models.ALWAYS_THINKING
    engine = FakeEngine(tokenizer=chat_models.tokenizer_with(template), script="Hm.\n</think>\nYes.")
    with running(engine) as server:
        message = server.chat(max_tokens=99).record["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("Hm.", "Yes.")


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("fields", "grammar"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, Grammar.json_object()),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
            Grammar.json_schema(SCHEMA),
        ),
        ({"structured_outputs": {"json": SCHEMA}}, Grammar.json_schema(SCHEMA)),
        ({"structured_outputs": {"regex": "a+"}}, Grammar.regex("a+")),
        ({"structured_outputs": {"grammar": "start: X"}}, Grammar.lark("start: X")),
        ({"structured_outputs": {"choice": ["a.b", "c d"]}}, Grammar.regex(r"a\.b|c d")),
        ({"structured_outputs": {"json_object": True}}, Grammar.json_object()),
    ],
)
def test_a_grammar_reaches_the_engine(server: RunningServer, fields: dict[str, Any], grammar: Any) -> None:
    for answer in (server.chat(**fields), server.complete(**fields)):
        assert answer.status == 200
        assert server.engine.requests[-1].grammar == grammar


def test_a_slow_grammar_delays_no_other_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are threads of any kind are compiled, for as long as the test runs."""
    engine = FakeEngine()
    over = threading.Event()
    submit = engine.submit

    def compile_and_submit(request: Any) -> Any:
        if request.grammar is not None:
            assert over.wait(SECONDS)
        return submit(request)

    monkeypatch.setattr(engine, "submit", compile_and_submit)
    with running(engine) as server, ThreadPoolExecutor(8) as clients:
        form = {"type": "json_object"}
        slow = [clients.submit(lambda: server.chat(response_format=form).status) for _ in range(8)]
        wait_until(lambda: server.server.lifecycle.in_flight == 8)
        assert server.chat().status == 200
        over.set()
        assert [each.result() for each in slow] == [200] * 8


HOSTILE = {"type": "json_schema", "json_schema": {"schema": {"type": "object", "unknownKeyword": 1}}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": HOSTILE}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": [""]}}, "structured_outputs.choice"),
        (
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
            "structured_outputs",
        ),
    ],
)
def test_a_wrong_grammar_is_refused(server: RunningServer, fields: dict[str, Any], param: str) -> None:
    answer = server.chat(**fields)
    assert (answer.status, answer.error["param"]) == (400, param)
