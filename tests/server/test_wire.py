"""What goes over the wire, byte by byte: exchanges of each interface, as the files in `wire/` have them.

`python -m tests.server.test_wire` writes the files anew; their difference is the change that clients see.
"""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tiny_llm.errors import NumericError, QueueFull

from ..support.serving import chat_models
from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import RunningServer, running

FOLDER = Path(__file__).parent / "wire"
KEY, ORIGIN = "secret", "https://app.example"
HEADERS = {"authorization": f"Bearer {KEY}", "origin": ORIGIN}
TEMPLATE = chat_models.TOOLS + chat_models.MESSAGES + chat_models.THINKING
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>'
REASONED = {"script": f"<think>Hm</think>A fox.{CALL}{CALL}"}
FOX = {"script": "A fox"}
FAILS: dict[str, Any] = {**FOX, "failure": NumericError(), "fail_after": 1}
FULL = {"refusal": QueueFull(8)}

USER = {"role": "user", "content": "Hi"}
CHAT: dict[str, Any] = {"messages": [USER]}
MESSAGE = {**CHAT, "max_tokens": 299}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "weather", "description": "of a city", "parameters": PARAMETERS}
TOOLS = {"tools": [{"type": "function", "function": FUNCTION}]}
SCORED = {"logprobs": True, "top_logprobs": 2}

# For each file: the path, the body of a POST, and what the engine is set to.
Exchanges = list[tuple[str, Any, dict[str, Any]]]
FILES: dict[str, Exchanges] = {
    "chat": [
        ("/v1/chat/completions", {**CHAT, **fields}, engine)
        for fields, engine in (
            ({**TOOLS, "chat_template_kwargs": {"enable_thinking": True}}, REASONED),
            ({**SCORED, "n": 2}, {"script": ("A fox", "No")}),
            ({"stop": " fox"}, FOX),
            ({"max_tokens": 1}, FOX),
            ({}, FAILS),
            ({}, FULL),
        )
    ],
    "completions": [
        ("/v1/completions", {"prompt": "Once", **fields}, engine)
        for fields, engine in (
            ({"echo": True, "logprobs": 2, "max_tokens": 2, "n": 2}, {}),
            ({"prompt": ["A longer one", "Another one"], "max_tokens": 1}, {}),
            ({"echo": True, "logprobs": 0, "max_tokens": 0, "stop": "A"}, {"script": "A"}),
            ({}, FAILS),
            ({}, FULL),
        )
    ],
    "responses": [
        ("/v1/responses", {"input": "Hi", **fields}, engine)
        for fields, engine in (
            ({"tools": [{"type": "function", **FUNCTION}], "reasoning": {"effort": "low"}}, REASONED),
            ({"top_logprobs": 1, "max_output_tokens": 1}, FOX),
            ({}, FAILS),
            ({}, FULL),
        )
    ],
    "messages": [
        ("/v1/messages", {**MESSAGE, **fields}, engine)
        for fields, engine in (
            (
                {
                    "tools": [{"name": "weather", "input_schema": PARAMETERS}],
                    "thinking": {"type": "enabled", "budget_tokens": 1024},
                    "context_management": {},
                },
                REASONED,
            ),
            ({"stop_sequences": [" fox"]}, FOX),
            ({"max_tokens": 1}, FOX),
            ({}, FAILS),
            ({}, FULL),
        )
    ],
    "ollama": [
        ("/api/chat", {**CHAT, **TOOLS, "think": True}, REASONED),
        ("/api/chat", {**CHAT, **SCORED}, FOX),
        ("/api/chat", CHAT, FAILS),
        ("/api/chat", CHAT, FULL),
        ("/api/generate", {"prompt": "Hi", "think": True}, {"script": "<think>Hm</think>A fox"}),
        ("/api/generate", {"prompt": "Hi", "raw": True, "options": {"num_predict": 1}}, FOX),
        ("/api/generate", {}, {}),
        ("/api/tags", None, {}),
        ("/api/show", {"model": "fake"}, {}),
        ("/api/version", None, {}),
        ("/api/nothing", None, {}),
    ],
    "others": [
        ("/v1/models", None, {}),
        ("/v1/models/fake", None, {}),
        ("/v1/models/other", None, {}),
        ("/v1/nothing", None, {}),
        ("/v1/messages/nothing", None, {}),
        ("/v1/messages/count_tokens", CHAT, {}),
        ("/v1/responses/input_tokens", {"input": "Hi"}, {}),
        ("/tokenize", {"prompt": "A fox", "return_token_strs": True}, {}),
        ("/tokenize", CHAT, {}),
        ("/detokenize", {"tokens": [300, 301]}, {}),
        ("/health", None, {}),
        ("/health", None, {"healthy": False}),
        ("/ready", None, {}),
    ],
}
STREAMS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/api/chat",
    "/api/generate",
)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with started() as server:
        yield server


@contextmanager
def started() -> Iterator[RunningServer]:
    engine = FakeEngine(tokenizer=chat_models.tokenizer_with(TEMPLATE), cached=3)
    with counted(), running(engine, api_keys=(KEY,), allowed_origins=(ORIGIN,)) as server:
        yield server


@contextmanager
def counted() -> Iterator[None]:
    """Ids are numbers that count, and so is each look at the clock that durations are measured with."""
    ids, ticks = itertools.count(1), itertools.count(1000, 1000)
    with (
        patch.object(secrets, "token_hex", lambda size: f"{next(ids):0{size}x}"),
        patch.object(time, "time", lambda: 1_700_000_000.25),
        patch.object(time, "perf_counter_ns", lambda: next(ticks)),
    ):
        yield


def written(server: RunningServer, exchanges: Exchanges) -> str:
    """Requests with their answers; what can be a stream is asked for whole and as a stream."""
    parts = []
    for path, body, engine in exchanges:
        bodies = [{**body, "stream": stream} for stream in (False, True)] if path in STREAMS else [body]
        if path.endswith("completions"):
            bodies[1]["stream_options"] = {"include_usage": True}
        for each in bodies:
            with counted(), patch.multiple(server.engine, **{"script": None, "failure": None, **engine}):
                answer = server.request("GET" if each is None else "POST", path, each, HEADERS)
            headers = [f"{name}: {value}" for name, value in sorted(answer.headers.items()) if name != "date"]
            request = path if each is None else f"{path} {json.dumps(each)}"
            parts.append(
                "\n".join([request, str(answer.status), *headers, "", answer.body.decode().rstrip()])
            )
    return "\n\n\n".join(parts) + "\n"


@pytest.mark.parametrize("name", FILES)
def test_exchanges_are_as_written(server: RunningServer, name: str) -> None:
    expected = (FOLDER / f"{name}.txt").read_text()
    assert written(server, FILES[name]).splitlines() == expected.splitlines()


if __name__ == "__main__":
    with started() as server_of_all:
        for name, exchanges in FILES.items():
            (FOLDER / f"{name}.txt").write_text(written(server_of_all, exchanges))
