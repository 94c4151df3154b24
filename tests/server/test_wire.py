"""Exchanges of each interface, byte by byte, with what the engine gets, as the files in `wire/` have them.

`python -m tests.server.test_wire` writes the files anew; their difference is the change that clients see.
"""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tiny_llm.engine import EngineRequest
from tiny_llm.errors import NumericError, QueueFull

from ..support.serving import chat_models
from ..support.serving.fake_engine import FakeEngine, embedded_tokenizer
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
SAMPLED = {
    "temperature": 0.5, "top_p": 0.6, "top_k": 7, "min_p": 0.1, "seed": 8, "presence_penalty": 0.25,
    "frequency_penalty": 0.75, "repetition_penalty": 1.5, "logit_bias": {"300": 2}, "stop_token_ids": [301],
    "min_tokens": 1, "ignore_eos": True, "stop": ["x", "y"], "max_tokens": 3, "cache_salt": "salt",
}  # fmt: skip
OPTIONS = {
    "temperature": 0.5, "top_p": 0.6, "top_k": 7, "min_p": 0.1, "seed": 8, "presence_penalty": 0.25,
    "frequency_penalty": 0.75, "repeat_penalty": 1.5, "repeat_last_n": -1, "stop": ["x", "y"],
    "num_predict": 3,
}  # fmt: skip
SYSTEM = {"role": "system", "content": "Be brief."}
QUESTION = {"role": "user", "content": "Weather?"}
ARGUMENTS = {"city": "Paris"}
CALLED = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": json.dumps(ARGUMENTS)}}
TURNS = [
    SYSTEM,
    QUESTION,
    {"role": "assistant", "content": "I look.", "tool_calls": [CALLED]},
    {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "sun"}]},
]
ITEMS = [
    QUESTION,
    {"role": "assistant", "content": "I look."},
    {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": "sun"},
]
USED = {"type": "tool_use", "id": "1", "name": "weather", "input": ARGUMENTS}
FAILED = {"type": "tool_result", "tool_use_id": "1", "is_error": True, "content": "no"}
BLOCKS = [
    QUESTION,
    {"role": "assistant", "content": [{"type": "text", "text": "I look."}, USED]},
    {"role": "user", "content": [FAILED, {"type": "text", "text": "So?"}]},
]
OLLAMA_TURNS = [
    SYSTEM,
    QUESTION,
    {"role": "assistant", "tool_calls": [{"function": {"name": "weather", "arguments": ARGUMENTS}}]},
    {"role": "tool", "tool_name": "weather", "content": "sun"},
]
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
            ({**TOOLS, "max_tokens": 9}, {"script": f"A fox.{CALL}"}),
            ({**TOOLS, "stop": "Paris"}, {"script": f"A fox.{CALL}"}),
            (SAMPLED, FOX),
            ({"messages": TURNS, **TOOLS, "tool_choice": "none"}, FOX),
            ({**TOOLS, "tool_choice": "required", "parallel_tool_calls": False}, FOX),
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
            (SAMPLED, FOX),
            ({}, FAILS),
            ({}, FULL),
        )
    ],
    "responses": [
        ("/v1/responses", {"input": "Hi", **fields}, engine)
        for fields, engine in (
            ({"tools": [{"type": "function", **FUNCTION}], "reasoning": {"effort": "low"}}, REASONED),
            ({"top_logprobs": 1, "max_output_tokens": 1}, FOX),
            (
                {
                    "input": ITEMS,
                    "instructions": "Be brief.",
                    "temperature": 0.5,
                    "top_p": 0.6,
                    "seed": 8,
                    "max_output_tokens": 3,
                    "text": {"format": {"type": "json_object"}},
                    "user": "me",
                    "metadata": {"a": "b"},
                },
                FOX,
            ),
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
            (
                {
                    "messages": BLOCKS,
                    "system": "Be brief.",
                    "temperature": 0.5,
                    "top_p": 0.6,
                    "top_k": 7,
                    "stop_sequences": ["x", "y"],
                    "max_tokens": 3,
                },
                FOX,
            ),
            ({"max_tokens": 1}, FOX),
            ({}, FAILS),
            ({}, FULL),
        )
    ],
    "ollama": [
        ("/api/chat", {**CHAT, **TOOLS, "think": True}, REASONED),
        ("/api/chat", {**CHAT, **SCORED}, FOX),
        ("/api/chat", {"messages": OLLAMA_TURNS, "options": OPTIONS, "format": "json"}, FOX),
        ("/api/chat", {"messages": [USER, {"role": "assistant", "content": "A"}]}, FOX),
        ("/api/generate", {"prompt": "Hi", "system": "Be brief.", "options": OPTIONS}, FOX),
        ("/api/generate", {"prompt": "Hi", "raw": True, "options": OPTIONS}, FOX),
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
    """Requests, what the engine got, and answers; what can be a stream is asked for whole and as a stream."""
    parts = []
    for path, body, engine in exchanges:
        bodies = [{**body, "stream": stream} for stream in (False, True)] if path in STREAMS else [body]
        if path.endswith("completions"):
            bodies[1]["stream_options"] = {"include_usage": True}
        for each in bodies:
            server.engine.requests.clear()
            with counted(), patch.multiple(server.engine, **{"script": None, "failure": None, **engine}):
                answer = server.request("GET" if each is None else "POST", path, each, HEADERS)
            headers = [f"{name}: {value}" for name, value in sorted(answer.headers.items()) if name != "date"]
            request = path if each is None else f"{path} {json.dumps(each)}"
            got = map(given, server.engine.requests) if each is bodies[0] else ()
            said = answer.body.decode().rstrip()
            parts.append("\n".join([request, *got, str(answer.status), *headers, "", said]))
    return "\n\n\n".join(parts) + "\n"


def given(request: EngineRequest) -> str:
    """Its prompt, and what differs from the defaults."""
    prompt = embedded_tokenizer().decode(request.prompt_ids)
    values = {
        field: getattr(record, field.name)
        for record in (request, request.sampling)
        for field in fields(record)
    }
    changed = [
        f"{field.name}={value!r}"
        for field, value in values.items()
        if value not in (field.default, request.sampling, request.prompt_ids)
    ]
    return f"{prompt!r} {' '.join(changed)}"


def schemas(server: RunningServer) -> str:
    """A line for each field of a request or an answer, as the OpenAPI document has it."""
    document = server.request("GET", "/openapi.json", headers=HEADERS).record
    lines = []
    for name, schema in document["components"]["schemas"].items():
        for place, value in {**schema.pop("properties", {}), "": schema}.items():
            lines.append(f"{name}.{place} {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def all_files(server: RunningServer) -> Iterator[tuple[Path, str]]:
    yield FOLDER / "schemas.txt", schemas(server)
    for name, exchanges in FILES.items():
        yield FOLDER / f"{name}.txt", written(server, exchanges)


def test_what_goes_over_the_wire_is_as_written(server: RunningServer) -> None:
    for path, text in all_files(server):
        assert text.splitlines() == path.read_text().splitlines()


if __name__ == "__main__":
    with started() as server_of_all:
        for file, text in all_files(server_of_all):
            file.write_text(text)
