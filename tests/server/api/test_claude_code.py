"""What Claude Code sends to /v1/messages, with every field that it sends, is answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ...support.serving import chat_models
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.running import Answer, RunningServer, running

BETAS = (
    "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,"
    "prompt-caching-scope-2026-01-05,effort-2025-11-24"
)
HEADERS = {
    "anthropic-beta": BETAS,
    "anthropic-dangerous-direct-browser-access": "true",
    "anthropic-version": "2023-06-01",
    "authorization": "Bearer unused",
    "user-agent": "claude-cli/2.1.0 (external, cli)",
    "x-app": "cli",
    "x-stainless-lang": "js",
    "x-stainless-retry-count": "0",
}
EPHEMERAL = {"type": "ephemeral"}
SCHEMA_URL = "https://json-schema.org/draft/2020-12/schema"
TOOLS = [
    {
        "name": "Bash",
        "description": "Runs a command in a shell.",
        "input_schema": {
            "$schema": SCHEMA_URL,
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "the command"},
                "timeout": {"type": "number", "description": "milliseconds"},
                "run_in_background": {"type": "boolean"},
            },
            "required": ["command"],
            "additionalProperties": False,
        },
    },
    {
        "name": "mcp__a_server_with_a_long_name__and_a_tool_whose_name_is_even_longer_than_that",
        "description": "A tool of a server.",
        "input_schema": {"type": "object", "properties": {}},
        "cache_control": EPHEMERAL,
        "eager_input_streaming": True,
    },
]
QUESTION: dict[str, Any] = {
    "role": "user",
    "content": [
        {"type": "text", "text": "<system-reminder>\nToday is a day.\n</system-reminder>"},
        {"type": "text", "text": "How many files are here?", "cache_control": EPHEMERAL},
    ],
}
BODY: dict[str, Any] = {
    "model": "fake",
    "messages": [QUESTION],
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.0; cc_entrypoint=cli;"},
        {"type": "text", "text": "You help with code.", "cache_control": EPHEMERAL},
        {"type": "text", "text": "Be brief.", "cache_control": {**EPHEMERAL, "ttl": "1h"}},
    ],
    "tools": TOOLS,
    "metadata": {"user_id": json.dumps({"device_id": "d", "account_uuid": "", "session_id": "s"})},
    "max_tokens": 32000,
    "thinking": {"type": "enabled", "budget_tokens": 31999},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "medium"},
    "stream": True,
}
CALL = '<tool_call>\n{"name": "Bash", "arguments": {"command": "ls | wc -l"}}\n</tool_call>'


@pytest.fixture(scope="module", params=[chat_models.THINKING, ""], ids=["thinking", "without"])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """Of a model with a switch for thinking, and of one without."""
    template = chat_models.TOOLS + chat_models.MESSAGES + request.param
    with running(FakeEngine(tokenizer=chat_models.tokenizer_with(template))) as started:
        yield started


def send(server: RunningServer, path: str, **fields: Any) -> Answer:
    return server.request("POST", f"{path}?beta=true", {**BODY, **fields}, HEADERS)


def events(answer: Answer) -> list[dict[str, Any]]:
    parts = [part for part in answer.body.decode().split("\n\n") if part]
    return [json.loads(part.partition("\ndata: ")[2]) for part in parts]


def test_a_question_and_the_result_of_a_call_are_answered(server: RunningServer) -> None:
    server.engine.script = CALL
    asked = send(server, "/v1/messages")
    assert asked.status == 200
    *_, delta, stop = events(asked)
    assert (delta["delta"]["stop_reason"], stop["type"]) == ("tool_use", "message_stop")
    assert delta["context_management"] == {"applied_edits": []}
    (block,) = [event["content_block"] for event in events(asked) if "content_block" in event]
    used = {"type": "tool_use", "id": block["id"], "name": "Bash", "input": {"command": "ls | wc -l"}}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    result = {"tool_use_id": block["id"], "type": "tool_result", "content": "7", "is_error": False}
    turns = [
        QUESTION,
        {"role": "assistant", "content": [thought, used]},
        {"role": "user", "content": [{**result, "cache_control": EPHEMERAL}]},
    ]
    server.engine.script = "Seven."
    answered = events(send(server, "/v1/messages", messages=turns))
    deltas = [event["delta"] for event in answered if event["type"] == "content_block_delta"]
    assert "".join(delta["text"] for delta in deltas) == "Seven."
    assert answered[-2]["delta"]["stop_reason"] == "end_turn"
    written = server.engine.tokenizer.decode(server.engine.requests[-1].prompt_ids)
    assert written.index("Be brief.") < written.index("How many files") < written.index("tool\n7")


def test_the_tokens_of_a_request_are_counted(server: RunningServer) -> None:
    counted = send(server, "/v1/messages/count_tokens")
    server.engine.script = "Seven."
    (start, *_) = events(send(server, "/v1/messages"))
    assert counted.record == {"input_tokens": start["message"]["usage"]["input_tokens"]}


def test_small_requests_beside_the_conversation(server: RunningServer) -> None:
    """Whether there is quota, and the title of a conversation, which has a format."""
    server.engine.script = "Hi."
    quota = {"role": "user", "content": "quota"}
    body = {"model": "fake", "max_tokens": 1, "messages": [quota], "metadata": BODY["metadata"]}
    assert server.request("POST", "/v1/messages?beta=true", body, HEADERS).status == 200
    server.engine.script = '{"title": "Files"}'
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    schema = {**schema, "additionalProperties": False}
    config = {"format": {"type": "json_schema", "schema": schema}}
    disabled = {"type": "disabled"}
    titled = send(server, "/v1/messages", tools=[], thinking=disabled, temperature=1, output_config=config)
    assert titled.status == 200
    assert server.engine.requests[-1].grammar.kind == "json_schema"
