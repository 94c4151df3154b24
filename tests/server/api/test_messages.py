"""/v1/messages: Anthropic's client, whole answers and streams, tools, thinking."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tiny_llm.errors import QueueFull

from ...support.serving import chat_models
from ...support.serving.fake_engine import CONTEXT, FakeEngine
from ...support.serving.grammars import follows
from ...support.serving.running import RunningServer, running

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TOOL: Any = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
TEMPLATE = chat_models.TOOLS + chat_models.MESSAGES + chat_models.THINKING
USER: Any = {"role": "user", "content": "Weather?"}
KEY = "secret"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    engine = FakeEngine(tokenizer=chat_models.tokenizer_with(TEMPLATE))
    with running(engine, api_keys=(KEY,)) as started:
        yield started


@pytest.fixture(scope="module")
def client(server: RunningServer) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0)


SCRIPTS: list[tuple[str, dict[str, Any], list[str], str]] = [
    ("Hello there.", {}, ["text"], "end_turn"),
    (f"I look.\n{CALL}{CALL}", {"tools": [TOOL]}, ["text", "tool_use", "tool_use"], "tool_use"),
    (
        "<think>\nHm.\n</think>\nYes.",
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        ["thinking", "text"],
        "end_turn",
    ),
]


@pytest.mark.parametrize(("script", "fields", "kinds", "reason"), SCRIPTS)
def test_a_stream_builds_the_whole_answer(
    server: RunningServer,
    client: anthropic.Anthropic,
    script: str,
    fields: dict[str, Any],
    kinds: list[str],
    reason: str,
) -> None:
    server.engine.script = script
    options: Any = {"model": "fake", "max_tokens": 400, "messages": [USER], **fields}
    whole = client.messages.create(**options)
    assert [block.type for block in whole.content] == kinds
    assert whole.stop_reason == reason
    with client.messages.stream(**options) as stream:
        final = stream.get_final_message()
    assert [without_id(block) for block in final.content] == [without_id(block) for block in whole.content]
    for message in (whole, final):
        assert (message.type, message.role, message.model) == ("message", "assistant", "fake")
        assert message.id.startswith("msg-")
        assert all(block.id.startswith("call_") for block in message.content if block.type == "tool_use")
        assert all(block.signature == "" for block in message.content if block.type == "thinking")
    assert final.stop_reason == reason
    assert final.usage.output_tokens == whole.usage.output_tokens


@pytest.mark.parametrize("max_tokens", [1, 40])
def test_all_usages_agree_on_the_tokens_of_the_prompt_that_were_cached(
    server: RunningServer, client: anthropic.Anthropic, monkeypatch: pytest.MonkeyPatch, max_tokens: int
) -> None:
    monkeypatch.setattr(server.engine, "cached", 3)
    options: Any = {"model": "fake", "max_tokens": max_tokens, "messages": [USER]}
    whole = client.messages.create(**options).usage
    assert (whole.cache_read_input_tokens, whole.cache_creation_input_tokens) == (3, 0)
    assert whole.input_tokens == len(server.engine.requests[-1].prompt_ids) - 3
    start, *_, delta, _ = client.messages.create(**options, stream=True)
    for usage in (start.message.usage, delta.usage):
        assert usage.input_tokens == whole.input_tokens
        assert usage.cache_read_input_tokens == 3
        assert usage.cache_creation_input_tokens == 0
    assert delta.usage.output_tokens == whole.output_tokens


def without_id(block: Any) -> dict[str, Any]:
    return {name: value for name, value in block.model_dump().items() if name not in ("id", "parsed_output")}


def test_a_call_and_its_result_reach_the_template(server: RunningServer, client: anthropic.Anthropic) -> None:
    server.engine.script = CALL
    options: Any = {"model": "fake", "max_tokens": 400, "tools": [TOOL], "system": "Be brief."}
    first = client.messages.create(messages=[USER], **options)
    (call,) = first.content
    assert (call.name, call.input) == ("weather", {"city": "Paris"})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "sunny"}]}
    thought = {"type": "thinking", "thinking": "x", "signature": ""}
    turns: Any = [
        USER,
        {
            "role": "assistant",
            "content": [thought, call.model_dump()],
        },
        {"role": "user", "content": [result, {"type": "text", "text": "So?"}]},
    ]
    server.engine.script = "Sunny."
    assert client.messages.create(messages=turns, **options).content[0].text == "Sunny."
    written = server.engine.tokenizer.decode(server.engine.requests[-1].prompt_ids)
    assert written.index("system\nBe brief.") < written.index("user\nWeather?")
    assert '"arguments": {"city": "Paris"}' in written
    assert written.index("<|im_start|>tool\nsunny") < written.index("<|im_start|>user\nSo?")


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
def test_a_call_can_be_required(
    server: RunningServer, client: anthropic.Anthropic, choice: dict[str, Any]
) -> None:
    server.engine.script = CALL
    choice = {**choice, "disable_parallel_tool_use": True}
    options: Any = {"model": "fake", "max_tokens": 99, "messages": [USER], "tools": [TOOL]}
    answer = client.messages.create(tool_choice=choice, **options)
    assert [block.type for block in answer.content] == ["tool_use"]
    assert "weather" in server.engine.requests[-1].grammar.text


def test_an_answer_can_end_after_its_first_call(server: RunningServer, client: anthropic.Anthropic) -> None:
    server.engine.script = f"I look.\n{CALL}{CALL} and so on"
    options: Any = {"model": "fake", "max_tokens": 400, "messages": [USER], "tools": [TOOL]}
    options["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": True}
    whole = client.messages.create(**options)
    assert [block.type for block in whole.content] == ["text", "tool_use"]
    assert whole.stop_reason == "tool_use"
    with client.messages.stream(**options) as stream:
        final = stream.get_final_message()
    assert [without_id(block) for block in final.content] == [without_id(block) for block in whole.content]
    assert (final.stop_reason, final.usage.output_tokens) == ("tool_use", whole.usage.output_tokens)
    assert server.engine.handles[-1].cancelled


def test_the_result_of_a_tool_that_failed_says_so(server: RunningServer, client: anthropic.Anthropic) -> None:
    server.engine.script = "I see."
    for is_error in (True, False):
        result = {"type": "tool_result", "tool_use_id": "1", "content": "no city", "is_error": is_error}
        call = {"type": "tool_use", "id": "1", "name": "weather", "input": {}}
        turns: Any = [USER, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        client.messages.create(model="fake", max_tokens=9, messages=turns, tools=[TOOL])
        written = server.engine.tokenizer.decode(server.engine.requests[-1].prompt_ids)
        assert ("<|im_start|>tool\nError: no city" in written) == is_error


def test_a_model_without_thinking_answers_without_it() -> None:
    """Coding agents ask every model for it."""
    body = {"max_tokens": 5, "messages": [USER]}
    with running(FakeEngine()) as server:
        for kind in ("enabled", "adaptive", "disabled"):
            served = server.request("POST", "/v1/messages", {**body, "thinking": {"type": kind}})
            assert [block["type"] for block in served.record["content"]] == ["text"]


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FORMAT = {"type": "json_schema", "schema": SCHEMA}


@pytest.mark.parametrize("fields", [{"output_config": {"format": FORMAT}}, {"output_format": FORMAT}])
def test_an_answer_has_the_format(
    server: RunningServer, client: anthropic.Anthropic, fields: dict[str, Any]
) -> None:
    server.engine.script = '{"city": "Paris"}'
    client.messages.create(model="fake", max_tokens=99, messages=[USER], extra_body=fields)
    grammar = server.engine.requests[-1].grammar
    texts = {'{"city": "Paris"}': True, '{"city": 5}': False, "Paris": False}
    assert {text: follows(grammar, text) for text in texts} == texts


def test_a_strict_tool_is_called_with_its_arguments(
    server: RunningServer, client: anthropic.Anthropic
) -> None:
    server.engine.script = CALL
    tool = {**TOOL, "strict": True}
    client.messages.create(model="fake", max_tokens=99, messages=[USER], tools=[tool])
    grammar = server.engine.requests[-1].grammar
    texts = {CALL: True, "Hello": True, CALL.replace('"Paris"', "5"): False}
    assert {text: follows(grammar, text) for text in texts} == texts


@pytest.mark.parametrize("content", ["The sky ", [{"type": "text", "text": "The sky "}]])
def test_a_final_message_of_the_assistant_is_continued(
    server: RunningServer, client: anthropic.Anthropic, content: Any
) -> None:
    server.engine.script = "is blue."
    turns: Any = [USER, {"role": "assistant", "content": content}]
    answer = client.messages.create(model="fake", max_tokens=99, messages=turns)
    assert answer.content[0].text == "is blue."
    written = server.engine.tokenizer.decode(server.engine.requests[-1].prompt_ids)
    assert written.endswith("<|im_start|>assistant\nThe sky ")


def test_an_answer_is_as_long_as_the_context_allows(
    server: RunningServer, client: anthropic.Anthropic
) -> None:
    """Coding agents ask every model for 32,000 tokens."""
    server.engine.script = None
    options: Any = {"model": "fake", "max_tokens": 32_000, "messages": [USER]}
    whole = client.with_options(timeout=60).messages.create(**options)
    assert whole.stop_reason == "model_context_window_exceeded"
    assert whole.usage.output_tokens == CONTEXT - whole.usage.input_tokens
    with client.messages.stream(**options) as stream:
        assert stream.get_final_message().stop_reason == "model_context_window_exceeded"
    long: Any = [{"role": "user", "content": "word " * CONTEXT}]
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        client.with_options(timeout=60).messages.create(**{**options, "messages": long})


def test_the_reasons_of_an_end(server: RunningServer, client: anthropic.Anthropic) -> None:
    server.engine.script = None
    options: Any = {"model": "fake", "max_tokens": 8, "messages": [USER], "extra_body": {"temperature": 0}}
    cut = client.messages.create(**options)
    assert cut.stop_reason == "max_tokens"
    text = cut.content[0].text
    stopped = client.messages.create(**options, stop_sequences=[text[4:8]])
    assert (stopped.stop_reason, stopped.content[0].text) == ("stop_sequence", text[:4])
    assert stopped.stop_sequence == text[4:8]
    with client.messages.stream(**options, stop_sequences=["never", text[4:8]]) as stream:
        final = stream.get_final_message()
    assert (final.stop_reason, final.stop_sequence) == ("stop_sequence", text[4:8])


def test_fields_reach_the_engine(server: RunningServer, client: anthropic.Anthropic) -> None:
    body = {"temperature": 0.5, "top_p": 0.9, "top_k": 7}
    client.messages.create(model="fake", max_tokens=3, messages=[USER], stop_sequences=["x"], extra_body=body)
    sampling = server.engine.requests[-1].sampling
    assert (sampling.temp, sampling.top_p, sampling.top_k) == (0.5, 0.9, 7)
    assert (sampling.max_tokens, sampling.stop) == (3, ("x",))
    client.messages.create(model="fake", max_tokens=3, messages=[USER], extra_body={"top_k": 0})
    assert server.engine.requests[-1].sampling.top_k is None


def test_errors_are_those_of_anthropic(server: RunningServer, client: anthropic.Anthropic) -> None:
    options: Any = {"max_tokens": 3, "messages": [USER]}
    with pytest.raises(anthropic.NotFoundError) as unknown:
        client.messages.create(model="other", **options)
    assert unknown.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.AuthenticationError) as closed:
        client.with_options(api_key="wrong").messages.create(model="fake", **options)
    assert closed.value.body["type"] == "error"
    server.engine.refusal = QueueFull(8)
    with pytest.raises(anthropic.RateLimitError):
        client.messages.create(model="fake", **options)
    server.engine.refusal = None
    server.engine.failure = ValueError("an internal detail")
    with pytest.raises(anthropic.APIStatusError, match="failed to answer") as broken:
        list(client.messages.create(model="fake", **options, stream=True))
    server.engine.failure = None
    assert "detail" not in str(broken.value.body)


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": []},
        {"messages": [{"role": "user", "content": []}]},
        {"messages": [{"role": "assistant", "content": [{"type": "thinking"}]}]},
        {"max_tokens": None},
        {"max_tokens": 0},
        {"messages": [{"role": "developer", "content": "a"}]},
        {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_use", "name": "f", "input": {}}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {}}]}, USER]},
        {"tools": [{"type": "bash_20250124", "name": "bash"}]},
        {"tool_choice": {"type": "any"}},
        {"tool_choice": {"type": "tool"}, "tools": [TOOL]},
        {"tool_choice": {"type": "perhaps"}, "tools": [TOOL]},
        {"thinking": {"type": "perhaps"}},
        {"output_format": {"type": "xml", "schema": {}}},
        {"output_config": {"format": {"type": "json_schema"}}},
        {"output_config": {"format": FORMAT}, "output_format": FORMAT},
        {"output_format": {"type": "json_schema", "schema": {"surprise": 1}}},
        {"messages": [USER, {"role": "assistant", "content": "{"}], "output_format": FORMAT},
        {"messages": [USER, {"role": "assistant", "content": "{"}], "tool_choice": {"type": "any"}},
        {"temperature": 1.5},
    ],
)
def test_bad_input(server: RunningServer, fields: dict[str, Any]) -> None:
    answer = server.request(
        "POST", "/v1/messages", {"max_tokens": 5, "messages": [USER], **fields}, {"x-api-key": KEY}
    )
    assert answer.status == 400
    assert answer.record["type"] == "error"
    assert answer.record["error"]["type"] == "invalid_request_error"
