"""/v1/responses: OpenAI's client, whole answers and streams, functions, reasoning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tiny_llm.server.metrics import REFUSALS

from ...support.serving import chat_models
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.grammars import follows
from ...support.serving.running import RunningServer, running

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TOOL: Any = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
TEMPLATE = chat_models.TOOLS + chat_models.MESSAGES + chat_models.THINKING


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running(FakeEngine(tokenizer=chat_models.tokenizer_with(TEMPLATE))) as started:
        yield started


@pytest.fixture(scope="module")
def client(server: RunningServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)


def prompt(server: RunningServer) -> str:
    return server.engine.tokenizer.decode(server.engine.requests[-1].prompt_ids)


SCRIPTS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("Hello there.", {}, ["message"]),
    (f"I look.\n{CALL}{CALL}", {"tools": [TOOL]}, ["message", "function_call", "function_call"]),
    ("<think>\nHm.\n</think>\nYes.", {"reasoning": {"effort": "low"}}, ["reasoning", "message"]),
]


@pytest.mark.parametrize(("script", "fields", "kinds"), SCRIPTS)
def test_a_stream_builds_the_whole_answer(
    server: RunningServer, client: openai.OpenAI, script: str, fields: dict[str, Any], kinds: list[str]
) -> None:
    server.engine.script = script
    whole = client.responses.create(model="fake", input="Hi", **fields)
    assert [item.type for item in whole.output] == kinds
    assert whole.status == "completed"
    with client.responses.stream(model="fake", input="Hi", **fields) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [events[0].type, events[-1].type] == ["response.created", "response.completed"]
    assert [without_ids(item) for item in final.output] == [without_ids(item) for item in whole.output]
    assert final.output_text == whole.output_text
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    assert final.usage == whole.usage


def without_ids(item: Any) -> dict[str, Any]:
    record = item.model_dump()
    content = [{k: v for k, v in part.items() if k != "parsed"} for part in record.pop("content", None) or []]
    random = ("id", "call_id", "parsed_arguments")
    return {"content": content, **{name: value for name, value in record.items() if name not in random}}


def test_a_call_and_its_result_reach_the_template(server: RunningServer, client: openai.OpenAI) -> None:
    server.engine.script = CALL
    first = client.responses.create(model="fake", input="Weather?", instructions="Be brief.", tools=[TOOL])
    (call,) = first.output
    assert (call.name, call.arguments) == ("weather", '{"city":"Paris"}')
    server.engine.script = "Sunny."
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    question = {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]}
    second = client.responses.create(
        model="fake", input=[question, call.model_dump(), result], tools=[TOOL], instructions="Be brief."
    )
    assert second.output_text == "Sunny."
    written = prompt(server)
    assert written.index("system\nBe brief.") < written.index("user\nWeather?")
    assert '"arguments": {"city": "Paris"}' in written
    assert "<|im_start|>tool\nsunny" in written


def test_the_items_of_a_turn_are_one_message(server: RunningServer, client: openai.OpenAI) -> None:
    call: Any = {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"}
    words: Any = {"type": "message", "role": "assistant", "content": "I look."}
    turns = [{"role": "user", "content": "Weather?"}, words, call, call]
    client.responses.create(model="fake", input=turns, tools=[TOOL])
    calls = prompt(server).partition("<|im_start|>assistant\nI look.")[2].partition("<|im_end|>")[0]
    assert calls.count("<tool_call>") == 2
    client.responses.create(model="fake", input=[call, turns[0]], tools=[TOOL])
    assert prompt(server).count("<tool_call>") == 1  # a conversation may begin with a call


def test_an_answer_repeats_its_request(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.engine, "script", "Yes.")
    monkeypatch.setattr(server.engine, "cached", 3)
    fields = {
        "instructions": "Be brief.", "max_output_tokens": 50, "temperature": 0.5, "top_p": 0.5, "user": "u",
        "metadata": {"a": "b"}, "tool_choice": "none", "parallel_tool_calls": False,
    }  # fmt: skip
    asked = {"input": "Hi", "reasoning": {"effort": "low"}, "tools": [TOOL], **fields}
    record = server.request("POST", "/v1/responses", asked).record
    assert {name: record[name] for name in fields} == fields
    assert [tool["name"] for tool in record["tools"]] == [TOOL["name"]]
    assert record["reasoning"] == {"effort": "low", "summary": None}
    assert (record["object"], record["model"], record["status"]) == ("response", "fake", "completed")
    usage = record["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["input_tokens_details"] == {"cached_tokens": 3, "cache_write_tokens": 0}
    assert record["output"][0]["content"][0]["annotations"] == []


def test_an_answer_that_is_cut_is_incomplete(server: RunningServer, client: openai.OpenAI) -> None:
    server.engine.script = None
    cut = client.responses.create(model="fake", input="Hi", max_output_tokens=4)
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert cut.usage.output_tokens == 4
    events = list(client.responses.create(model="fake", input="Hi", max_output_tokens=4, stream=True))
    assert events[-1].type == "response.incomplete"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "weather"}])
def test_a_call_can_be_required(server: RunningServer, client: openai.OpenAI, choice: Any) -> None:
    server.engine.script = CALL
    tool = {**TOOL, "strict": True}
    answer = client.responses.create(model="fake", input="Weather?", tools=[tool], tool_choice=choice)
    assert [item.type for item in answer.output] == ["function_call"]
    assert "weather" in server.engine.requests[-1].grammar.text


def test_an_answer_can_end_after_its_first_call(server: RunningServer, client: openai.OpenAI) -> None:
    server.engine.script = f"I look.\n{CALL}{CALL} and so on"
    options: Any = {"model": "fake", "input": "Weather?", "tools": [TOOL]}
    for most, kinds in (
        (False, ["message", "function_call"]),
        (True, ["message", *["function_call"] * 2, "message"]),
    ):
        whole = client.responses.create(**options, parallel_tool_calls=most)
        assert [item.type for item in whole.output] == kinds
        assert (whole.parallel_tool_calls, whole.status) == (most, "completed")
        with client.responses.stream(**options, parallel_tool_calls=most) as stream:
            final = stream.get_final_response()
        assert [without_ids(item) for item in final.output] == [without_ids(item) for item in whole.output]


def test_what_coding_agents_ask_of_reasoning_is_accepted(
    server: RunningServer, client: openai.OpenAI
) -> None:
    server.engine.script = "<think>\nHm.\n</think>\nYes."
    answer = client.responses.create(
        model="fake",
        input="Hi",
        include=["reasoning.encrypted_content"],
        reasoning={"effort": "low", "summary": "auto"},
    )
    thought, said = answer.output
    assert answer.usage.output_tokens_details.reasoning_tokens == len(
        server.engine.tokenizer.encode("<think>\nHm.\n</think>", add_special_tokens=False)
    )
    assert 0 < answer.usage.output_tokens_details.reasoning_tokens < answer.usage.output_tokens
    assert (thought.content[0].text, thought.summary) == ("Hm.", [])
    assert said.content[0].text == "Yes."


def test_a_model_without_thinking_answers_without_it() -> None:
    with running(FakeEngine()) as server:
        for effort in ("none", "minimal", "high"):
            asked = {"input": "Hi", "reasoning": {"effort": effort}, "max_output_tokens": 2}
            assert server.request("POST", "/v1/responses", asked).status == 200


@pytest.mark.parametrize(
    ("fields", "top"),
    [({"include": ["message.output_text.logprobs"]}, 0), ({"top_logprobs": 2}, 2), ({}, None)],
)
def test_log_probabilities_are_those_of_the_text(
    server: RunningServer, client: openai.OpenAI, fields: dict[str, Any], top: int | None
) -> None:
    text = "<think>\nHm.\n</think>\nYes, a <tool or so."
    server.engine.script = f"{text}{CALL}"
    options: Any = {"model": "fake", "input": "Hi", "tools": [TOOL], "reasoning": {"effort": "low"}, **fields}
    whole = client.responses.create(**options)
    assert whole.top_logprobs == (top or 0)
    _, said, _ = whole.output
    (part,) = said.content
    with client.responses.stream(**options) as stream:
        events = list(stream)
        streamed = stream.get_final_response().output[1].content[0].logprobs
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    (done,) = [event for event in events if event.type == "response.output_text.done"]
    sent = [each.to_dict() for event in deltas for each in event.logprobs]
    assert [each.to_dict() for each in streamed] == [each.to_dict() for each in part.logprobs]
    assert [each.to_dict() for each in done.logprobs] == [each.to_dict() for each in part.logprobs]
    assert sent == [each.to_dict() for each in part.logprobs]
    if top is None:
        assert part.logprobs == []
        return
    assert part.text in "".join(each.token for each in part.logprobs)
    assert "Hm" not in "".join(each.token for each in part.logprobs)
    assert {len(each.top_logprobs) for each in part.logprobs} == {top}
    assert {each.logprob for each in part.logprobs} == {-0.5}
    assert server.engine.requests[-1].logprobs == top


def test_a_strict_function_is_called_with_its_arguments(server: RunningServer, client: openai.OpenAI) -> None:
    server.engine.script = CALL
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    for strict in (True, False):
        tool: Any = {**TOOL, "parameters": parameters, "strict": strict}
        client.responses.create(model="fake", input="Weather?", tools=[tool])
        grammar = server.engine.requests[-1].grammar
        assert (grammar is not None) == strict
        if grammar:
            texts = {CALL: True, "Hello": True, CALL.replace('"Paris"', "5"): False}
            assert {text: follows(grammar, text) for text in texts} == texts


def test_a_failure_ends_the_stream(server: RunningServer, client: openai.OpenAI) -> None:
    server.engine.script = None
    server.engine.failure = ValueError("an internal detail")
    events = list(client.responses.create(model="fake", input="Hi", stream=True))
    server.engine.failure = None
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.code == "server_error"
    assert "internal detail" not in events[-1].model_dump_json()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"type": "item_reference"}]}, "input[0].type"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"content": "a"}]}, "input[0].role"),
        ({"input": [{"type": "function_call_output", "call_id": "1"}]}, "input[0].output"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0]"),
        ({"input": [{"type": "function_call", "arguments": "{}"}]}, "input[0]"),
        ({"input": [{"type": "reasoning"}]}, "input"),
        ({"input": "a", "tools": [{"type": "web_search", "name": "x"}]}, "tools[0].type"),
        ({"input": "a", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "a", "store": True}, "store"),
        ({"input": "a", "background": True}, "background"),
        ({"input": "a", "truncation": "auto"}, "truncation"),
        ({"input": "a", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "a", "max_output_tokens": 10**6}, "max_output_tokens"),
        ({"input": "a " * 10_000}, "input"),
        ({"input": "a", "text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"input": "a", "text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        (
            {"input": "a", "tool_choice": {"type": "function", "name": "f"}, "tools": [TOOL]},
            "tool_choice.name",
        ),
        ({"input": "a", "tool_choice": {"type": "mcp", "name": "weather"}, "tools": [TOOL]}, "tool_choice"),
        ({"input": "a", "include": ["file_search_call.results"]}, "include[0]"),
        ({"input": "a", "top_logprobs": 50}, "top_logprobs"),
        ({"input": "a", "metadata": {"a": "b" * 2**21}}, "metadata"),
        ({"input": "a", "metadata": {"a": "b" * 2**19}, "instructions": "a" * 2**19}, "metadata"),
        ({"input": "a", "reasoning": {"effort": "low", "summary": "detailed"}}, "reasoning.summary"),
    ],
)
def test_bad_input(server: RunningServer, fields: dict[str, Any], param: str) -> None:
    answer = server.request("POST", "/v1/responses", fields)
    assert (answer.status, answer.error["param"]) == (400, param)
    assert answer.error["code"] in REFUSALS
