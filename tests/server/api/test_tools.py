"""Tools and thinking: what reaches the template and the engine, and what comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ...support.serving import chat_models
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.grammars import follows
from ...support.serving.running import RunningServer, running

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
NEWS = '<tool_call>\n{"name": "news", "arguments": {}}\n</tool_call>'
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


def function_with(parameters: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


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


OTHER_TOOL = {"type": "function", "function": {"name": "news", "strict": True}}
WEATHER = {"type": "function", "function": {"name": "weather"}}


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({"tool_choice": "required"}, [CALL, NEWS, f"{CALL}\n{NEWS}"]),
        ({"tool_choice": "required", "parallel_tool_calls": False}, [CALL, NEWS]),
        ({"tool_choice": WEATHER}, [CALL]),
    ],
)
def test_a_call_can_be_required(server: RunningServer, fields: dict[str, Any], texts: list[str]) -> None:
    choice, _ = say(server, CALL, tools=[TOOL, OTHER_TOOL], **fields)
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "weather"
    grammar = server.engine.requests[-1].grammar
    wrong = CALL.replace('"Paris"', "5")
    for text in (CALL, NEWS, f"{CALL}\n{NEWS}", "Hello", wrong, f"I look.\n{CALL}"):
        assert follows(grammar, text) == (text in texts)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "perhaps"}, "tool_choice"),
        ({"tool_choice": "required", "tools": []}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tool_choice": {**WEATHER, "type": "custom"}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice.function.name"),
        ({"tool_choice": WEATHER, "response_format": {"type": "json_object"}}, "tool_choice"),
        (
            {"tool_choice": "required", "tools": [function_with({"properties": {"a": {"surprise": 1}}})]},
            "tools",
        ),
    ],
)
def test_a_wrong_choice_of_tools_is_refused(
    server: RunningServer, fields: dict[str, Any], param: str
) -> None:
    answer = server.chat(**{"tools": [TOOL], **fields})
    assert (answer.status, answer.error["param"]) == (400, param)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("before", ["", "I look.\n"])
def test_an_answer_can_end_after_its_first_call(server: RunningServer, n: int, before: str) -> None:
    """Without a constraint, and the engine is told to stop."""
    script = f"{before}{CALL}\n{NEWS}{' and so on' * 50}"
    choice, events = say(server, script, tools=[TOOL], parallel_tool_calls=False, n=n)
    assert choice["finish_reason"] == "tool_calls"
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["weather"]
    assert choice["message"]["content"] == (before.strip() or None)
    tokens = len(server.engine.tokenizer.encode(script, add_special_tokens=False))
    for handle in server.engine.handles[-2:]:
        assert handle.cancelled
        assert handle.generated < n * tokens / 2
    for index in range(n):
        parts = [part for event in events for part in event["choices"] if part["index"] == index]
        calls = [part["delta"]["tool_calls"] for part in parts if "tool_calls" in part["delta"]]
        assert [call["function"]["name"] for (call,) in calls] == ["weather"]
        assert [part["finish_reason"] for part in parts if part["finish_reason"]] == ["tool_calls"]
        assert parts[-1]["finish_reason"] == "tool_calls"
    assert server.engine.requests[-1].grammar is None
    choice, _ = say(server, script, tools=[TOOL], parallel_tool_calls=True)
    assert len(choice["message"]["tool_calls"]) == 2


@pytest.mark.parametrize("last", ["Later.", f"Later.{CALL}{' and so on' * 50}"])
def test_choices_end_after_calls_of_their_own(server: RunningServer, last: str) -> None:
    """The engine is told to stop when no choice needs it any more."""
    first = f"{CALL}{' and so on' * 50}"
    server.engine.script = (first, "Well, " * 30 + last)
    answer = server.chat(max_tokens=400, tools=[TOOL], parallel_tool_calls=False, n=2).record
    one, other = answer["choices"]
    assert one["finish_reason"] == "tool_calls"
    assert len(one["message"]["tool_calls"]) == 1
    assert other["message"]["content"] == "Well, " * 30 + "Later."
    assert other["finish_reason"] == ("stop" if last == "Later." else "tool_calls")
    assert server.engine.handles[-1].cancelled
    assert server.engine.handles[-1].generated < 2 * len(
        server.engine.tokenizer.encode(first, add_special_tokens=False)
    )


def test_an_answer_without_a_call_goes_on_where_one_is_the_most(server: RunningServer) -> None:
    """Also what only looks like a call, and a call among the reasoning."""
    wrong = f"<tool_call>no JSON</tool_call>{'and so on ' * 9}".strip()
    choice, _ = say(server, wrong, tools=[TOOL], parallel_tool_calls=False)
    assert (choice["message"]["content"], choice["finish_reason"]) == (wrong, "stop")
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    thought = f"<think>{CALL} or not?</think>No."
    choice, _ = say(server, thought, tools=[TOOL], parallel_tool_calls=False, **thinking)
    assert (choice["message"]["content"], choice["finish_reason"]) == ("No.", "stop")


def test_the_usage_is_that_of_the_answer_up_to_its_call(server: RunningServer) -> None:
    server.engine.script = f"{CALL}{' and so on' * 50}"
    usage = server.chat(max_tokens=400, tools=[TOOL], parallel_tool_calls=False).record["usage"]
    tokens = server.engine.tokenizer.encode(CALL, add_special_tokens=False)
    assert usage["completion_tokens"] == len(tokens)


def test_a_choice_that_its_call_has_ended_gets_no_more_tokens(server: RunningServer) -> None:
    """The engine goes on with it while others of the request do."""
    other = "It rains. " * 40
    server.engine.script = (f"{CALL}{' and so on' * 50}", other)
    fields: Any = {"max_tokens": 400, "n": 2, "tools": [TOOL], "parallel_tool_calls": False}
    usage = server.chat(**fields).record["usage"]
    tokens = [server.engine.tokenizer.encode(text, add_special_tokens=False) for text in (CALL, other)]
    assert usage["completion_tokens"] == sum(map(len, tokens))
    choices = [choice for event in server.chat(**fields, stream=True).events for choice in event["choices"]]
    reasons = [each["finish_reason"] for each in choices if each["index"] == 0]
    assert reasons.count("tool_calls") == 1
    assert reasons[-1] == "tool_calls"


def test_an_answer_that_is_cut_after_a_call_says_so_in_each_interface(server: RunningServer) -> None:
    """A client must not take its calls for all of them."""
    server.engine.script = f"{CALL}{' and so on' * 50}"
    limit = len(server.engine.tokenizer.encode(CALL, add_special_tokens=False)) + 5
    function = TOOL["function"]
    messages = [{"role": "user", "content": "Weather?"}]

    def ask(path: str, tool: Any, **fields: Any) -> Any:
        answer = server.request("POST", path, {"tools": [tool], "stream": False, **fields})
        written = json.dumps(answer.record)
        assert "Paris" in written
        assert "<tool_call>" not in written  # it was read as a call
        return answer.record

    chat = ask("/v1/chat/completions", TOOL, messages=messages, max_tokens=limit)
    assert chat["choices"][0]["finish_reason"] == "length"
    schema = {"name": "weather", "input_schema": function["parameters"]}
    assert ask("/v1/messages", schema, messages=messages, max_tokens=limit)["stop_reason"] == "max_tokens"
    flat = {"type": "function", **function}
    assert ask("/v1/responses", flat, input="Weather?", max_output_tokens=limit)["status"] == "incomplete"
    ollama = ask("/api/chat", TOOL, messages=messages, options={"num_predict": limit})
    assert ollama["done_reason"] == "length"


def test_a_call_of_an_earlier_turn_needs_no_type(server: RunningServer) -> None:
    """Some clients leave it out: there is only one."""
    call = {"id": "1", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    turns = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "sunny"},
    ]
    choice, _ = say(server, CALL, messages=turns, tools=[TOOL], tool_choice="required")
    assert choice["finish_reason"] == "tool_calls"
    assert '"arguments": {"city": "Rome"}' in prompt(server)


def test_arguments_are_an_object_where_the_parameters_have_no_type(server: RunningServer) -> None:
    untyped = function_with({"properties": {"city": {"type": "string"}}})
    say(server, "<tool_call></tool_call>", tools=[untyped], tool_choice="required")
    grammar = server.engine.requests[-1].grammar
    for arguments, allowed in (('{"city": "Rome"}', True), ("{}", True), ("5", False), ('["Rome"]', False)):
        text = f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'
        assert follows(grammar, text) == allowed


def test_reasoning_is_apart_from_the_answer(server: RunningServer) -> None:
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    choice, events = say(server, "<think>\nHm.\n</think>\n\nYes.", **thinking)
    message = choice["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Yes.")
    deltas = [part["delta"] for event in events for part in event["choices"]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Hm."
    assert "".join(delta.get("content", "") for delta in deltas) == "Yes."
    usage = server.chat(max_tokens=99, **thinking).record["usage"]
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"]
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
