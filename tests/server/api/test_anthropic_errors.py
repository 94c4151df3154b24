"""Errors on the paths of Anthropic's clients have Anthropic's shape, whoever refuses the request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tiny_llm.server.errors import ApiError

from ...support.serving import chat_models
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.running import RunningServer, running

KEY = "secret"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    engine = FakeEngine(tokenizer=chat_models.tokenizer_with(chat_models.TOOLS + chat_models.MESSAGES))
    with running(engine, api_keys=(KEY,), max_body=2**16) as started:
        yield started


OK = {"x-api-key": KEY}


@pytest.mark.parametrize(
    ("request_of", "status", "kind"),
    [
        (("GET", "/v1/messages", None, OK), 405, "invalid_request_error"),
        (("GET", "/v1/messages/count_tokens", None, OK), 405, "invalid_request_error"),
        (("POST", "/v1/messages/batches", {}, OK), 404, "not_found_error"),
        (("POST", "/v1/messages/count_tokens", {"messages": []}, OK), 400, "invalid_request_error"),
        (("POST", "/v1/messages/count_tokens", {}, {}), 401, "authentication_error"),
        (("POST", "/v1/messages/batches", {}, {}), 401, "authentication_error"),
        (("POST", "/v1/messages/count_tokens", {}, {**OK, "host": "x.org"}), 403, "permission_error"),
        (("POST", "/v1/messages/count_tokens", b"x" * (2**16 + 1), OK), 413, "request_too_large"),
        (("POST", "/v1/messages/count_tokens", b"{}", {**OK, "content-type": "a/b"}), 415, None),
        (("POST", "/v1/messages/count_tokens", {}, {**OK, "x-long": "x" * 2**14}), 431, None),
    ],
)
def test_errors_have_one_shape_on_all_paths(
    server: RunningServer, request_of: tuple[str, str, Any, dict[str, str]], status: int, kind: str | None
) -> None:
    answer = server.request(*request_of)
    assert answer.status == status
    assert list(answer.record) == ["type", "error"]
    assert answer.record["type"] == "error"
    assert list(answer.record["error"]) == ["type", "message"]
    assert answer.record["error"]["type"] == (kind or "invalid_request_error")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"stop_sequences": ["x"] * 100}, "stop_sequences"),
        ({"output_format": {"type": "json_schema", "schema": {"surprise": 1}}}, "output_format"),
        ({"thinking": {"type": "perhaps"}}, "thinking.type"),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_result", "content": "a"}]}]},
            "messages[0].content[0].type",
        ),
        ({"output_format": {"type": "json_schema"}}, "output_format.schema"),
        (
            {
                "tool_choice": {"type": "tool", "name": "f"},
                "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
            },
            "tool_choice.name",
        ),
    ],
)
def test_an_error_names_the_field_of_the_request(
    server: RunningServer, fields: dict[str, Any], name: str
) -> None:
    answer = server.request(
        "POST",
        "/v1/messages",
        {"max_tokens": 5, "messages": [{"role": "user", "content": "?"}], **fields},
        OK,
    )
    assert answer.record["error"]["message"].startswith(f"{name}: ")


@pytest.mark.parametrize(
    ("status", "kind", "of_anthropic"),
    [
        (400, "invalid_request_error", "invalid_request_error"),
        (401, "authentication_error", "authentication_error"),
        (403, "permission_error", "permission_error"),
        (404, "not_found_error", "not_found_error"),
        (408, "invalid_request_error", "timeout_error"),
        (413, "invalid_request_error", "request_too_large"),
        (429, "rate_limit_error", "rate_limit_error"),
        (500, "server_error", "api_error"),
        (503, "server_error", "overloaded_error"),
    ],
)
def test_a_status_has_a_type_for_each_kind_of_clients(status: int, kind: str, of_anthropic: str) -> None:
    error = ApiError(status, "No.", param="x", code="y")
    for path, expected in (
        ("/v1/chat/completions", {"message": "No.", "type": kind, "param": "x", "code": "y"}),
        ("/v1/messages", {"type": of_anthropic, "message": "No."}),
        ("/api/chat", "No."),
    ):
        assert json.loads(error.encode(path))["error"] == expected
