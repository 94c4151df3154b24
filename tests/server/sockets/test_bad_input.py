"""Bad input over raw sockets: each is answered as promised, and the next request is answered as before."""

from __future__ import annotations

import pytest

from ...support.serving.fake_engine import CONTEXT
from ...support.serving.running import RunningServer
from .raw_requests import (
    CHUNKED,
    COMPLETIONS,
    REFUSAL,
    chat,
    chat_with,
    complete,
    http_request,
    message,
    parse,
)

BOTH = f"Transfer-Encoding: chunked\r\nContent-Length: {len(CHUNKED)}\r\n"
# After this request, on a connection that may stay open, comes another one.
SMUGGLED = http_request(CHUNKED + b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n", headers=BOTH)
SMUGGLED = SMUGGLED.replace(b"Connection: close\r\n", b"")
CALL = {"function": {"name": "f", "arguments": ""}}
# Name, request, status, param (None: not about a field).
Row = tuple[str, bytes, int, str | None]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
NOT_JSON: list[Row] = [
    ("not JSON", http_request(b"hello"), 400, None),
    ("empty", http_request(b""), 400, None),
    ("a list", http_request(b"[]"), 400, None),
    ("invalid UTF-8", http_request(b'{"messages": "\xff\xfe"}'), 400, None),
    ("invalid UTF-8 in an unknown field", chat_with('"x": "').replace(b'"x": "', b'"x": "\xff"'), 400, None),
    ("a lone surrogate", chat_with('"user": "\\ud800"'), 400, None),
    ("nested deeply", http_request(b"[" * 100_000), 400, None),
    ("nested deeply in an unknown field", chat_with('"x": ' + '{"a":' * 100_000), 400, None),
    ("an integer of 5000 digits", chat_with('"max_tokens": ' + "9" * 5000), 400, "max_tokens"),
    ("two values", http_request(b"{}{}"), 400, None),
]
NUMBERS: list[Row] = [
    ("NaN", chat_with('"temperature": NaN'), 400, "temperature"),
    ("-Infinity", chat_with('"top_p": -Infinity'), 400, "top_p"),
    ("1e999", chat_with('"temperature": 1e999'), 400, "temperature"),
    ("1e999 in an unknown field", chat_with('"x": 1e999'), 400, None),
    ("a bool as integer", chat(max_tokens=True), 400, "max_tokens"),
    ("a string as integer", chat(max_tokens="4"), 400, "max_tokens"),
    ("a fraction as integer", chat(max_tokens=1.5), 400, "max_tokens"),
    ("a bool as number", chat(temperature=False), 400, "temperature"),
    ("temperature 2.1", chat(temperature=2.1), 400, "temperature"),
    ("top_p 0", chat(top_p=0), 400, "top_p"),
    ("top_k -2", chat(top_k=-2), 400, "top_k"),
    ("min_p 1.5", chat(min_p=1.5), 400, "min_p"),
    ("presence_penalty 3", chat(presence_penalty=3), 400, "presence_penalty"),
    ("repetition_penalty 0", chat(repetition_penalty=0), 400, "repetition_penalty"),
    ("n 0", chat(n=0), 400, "n"),
    ("n beyond the cap", chat(n=10**6), 400, "n"),
    ("best_of beyond n", complete(best_of=1000), 400, "best_of"),
    ("best_of below n", complete(best_of=1, n=2), 400, "best_of"),
    ("too many lists of ids", complete(prompt=[[5]] * 1000), 400, "prompt"),
    ("too many prompts", complete(prompt=["a"] * 1000), 400, "prompt"),
    ("too many answers to prompts", complete(prompt=["a"] * 9, n=2), 400, "prompt"),
    ("max_tokens -1", chat(max_tokens=-1), 400, "max_tokens"),
    ("max_tokens 0", chat(max_tokens=0), 400, "max_tokens"),
    ("max_completion_tokens 0", chat(max_completion_tokens=0), 400, "max_completion_tokens"),
    ("max_tokens 0 without echo", complete(max_tokens=0), 400, "max_tokens"),
    ("min_tokens beyond max_tokens", chat(min_tokens=5), 400, "min_tokens"),
    ("top_logprobs 50", chat(logprobs=True, top_logprobs=50), 400, "top_logprobs"),
    ("top_logprobs without logprobs", chat(top_logprobs=5), 400, "top_logprobs"),
    ("logprobs 50", complete(logprobs=50), 400, "logprobs"),
    ("seed of 71 bits", chat(seed=2**70), 400, "seed"),
    ("seed 1.5", chat(seed=1.5), 400, "seed"),
    ("seed 1.0", chat(seed=1.0), 400, "seed"),
]
LISTS: list[Row] = [
    ("logit_bias beyond the vocabulary", chat(logit_bias={"4096": 1}), 400, "logit_bias"),
    ("logit_bias of a negative id", chat(logit_bias={"-1": 1}), 400, "logit_bias"),
    ("logit_bias of a word", chat(logit_bias={"hello": 1}), 400, "logit_bias"),
    ("logit_bias of text", chat(logit_bias={"5": "1"}), 400, "logit_bias"),
    ("logit_bias 101", chat(logit_bias={"5": 101}), 400, "logit_bias"),
    ("logit_bias of 10^5", chat(logit_bias={str(i): 1 for i in range(10**5)}), 400, "logit_bias"),
    ("stop of a number", chat(stop=[1]), 400, "stop[0]"),
    ("an empty stop", chat(stop=""), 400, "stop"),
    ("an empty stop in a list", chat(stop=["a", ""]), 400, "stop[1]"),
    ("thousands of stops", chat(stop=["a"] * 5000), 400, "stop"),
    ("a long stop behind a short one", chat(stop=["a", "a" * 5000]), 400, "stop"),
    ("a long stop", chat(stop="a" * 5000), 400, "stop"),
    ("stop_token_ids beyond the vocabulary", chat(stop_token_ids=[4096]), 400, "stop_token_ids"),
]
PROMPTS: list[Row] = [
    ("no messages", http_request(b"{}"), 400, "messages"),
    ("empty messages", chat(messages=[]), 400, "messages"),
    ("messages as text", chat(messages="Hello"), 400, "messages"),
    ("a message as text", chat(messages=["Hello"]), 400, "messages[0]"),
    ("no role", message(content="Hello"), 400, "messages[0].role"),
    ("an unknown role", message(role="wizard", content="Hello"), 400, "messages[0].role"),
    ("content null", message(role="user", content=None), 400, "messages[0].content"),
    ("content null of a tool", message(role="tool", content=None), 400, "messages[0].content"),
    (
        "a refusal of null",
        message(role="assistant", content=[REFUSAL]),
        400,
        "messages[0].content[0].refusal",
    ),
    ("too many messages", chat(messages=[{"role": "user", "content": ""}] * (2**14 + 1)), 400, "messages"),
    ("too many parts", message(role="user", content=[{"type": "text", "text": ""}] * 2**14), 400, "messages"),
    ("too many calls", message(role="assistant", tool_calls=[CALL] * 2**14), 400, "messages"),
    ("content of a number", message(role="user", content=5), 400, "messages[0].content"),
    ("a call of a user", message(role="user", content="", tool_calls=[CALL]), 400, "messages[0].tool_calls"),
    ("a call of a tool", message(role="tool", content="", tool_calls=[CALL]), 400, "messages[0].tool_calls"),
    ("no prompt", http_request(b'{"max_tokens": 4}', COMPLETIONS), 400, "prompt"),
    ("an empty prompt", complete(prompt=""), 400, "prompt"),
    ("an empty prompt behind another", complete(prompt=["a", ""]), 400, "prompt"),
    ("an id beyond the vocabulary in a second list", complete(prompt=[[5], [4096]]), 400, "prompt"),
    ("no ids", complete(prompt=[]), 400, "prompt"),
    ("an empty list of ids", complete(prompt=[[]]), 400, "prompt"),
    ("an id beyond the vocabulary", complete(prompt=[5, 4096]), 400, "prompt"),
    ("a negative id", complete(prompt=[-1]), 400, "prompt"),
    ("an id of 71 bits", complete(prompt=[2**70]), 400, "prompt"),
    ("a mixture", complete(prompt=["a", 5]), 400, "prompt"),
    ("a prompt beyond the context", complete(prompt=[5] * CONTEXT), 400, "prompt"),
    ("messages beyond the context", message(role="user", content="word " * 5000), 400, "prompt"),
    ("two million characters", message(role="user", content="word " * 400_000), 400, "messages"),
    ("an answer beyond the context", complete(prompt=[5] * 2000, max_tokens=49), 400, "max_tokens"),
    ("max_completion_tokens", chat(max_completion_tokens=5000), 400, "max_completion_tokens"),
    (
        "an image",
        message(role="user", content=[{"type": "image_url", "image_url": {"url": "http://localhost:9/x"}}]),
        400,
        "messages[0].content[0].type",
    ),
    ("audio", message(role="user", content=[{"type": "input_audio"}]), 400, "messages[0].content[0].type"),
    (
        "a text part without text",
        message(role="user", content=[{"type": "text"}]),
        400,
        "messages[0].content[0].text",
    ),
]
FEATURES: list[Row] = [
    ("an unknown format", chat(response_format={"type": "xml"}), 400, "response_format.type"),
    ("a chat_template", chat(chat_template="{{ messages }}"), 400, "chat_template"),
    ("kwargs tokenize", chat(chat_template_kwargs={"tokenize": True}), 400, "chat_template_kwargs.tokenize"),
    ("kwargs messages", chat(chat_template_kwargs={"messages": []}), 400, "chat_template_kwargs.messages"),
    ("thinking without a switch", chat(chat_template_kwargs={"enable_thinking": True}), 400,
     "chat_template_kwargs.enable_thinking"),
    ("a switch that is no bool", chat(chat_template_kwargs={"enable_thinking": ""}), 400,
     "chat_template_kwargs.enable_thinking"),
    ("suffix", complete(suffix="end"), 400, "suffix"),
    ("functions", chat(functions=[{"name": "f"}]), 400, "functions"),
    ("stream_options without stream", chat(stream_options={"include_usage": True}), 400, "stream_options"),
    ("a tool of another type", chat(tools=[TOOL | {"type": "file"}]), 400, "tools[0].type"),
    ("a tool without a name", chat(tools=[TOOL | {"function": {}}]), 400, "tools[0].function.name"),
    (
        "a tool with a broken schema",
        chat(tools=[{"type": "function", "function": {"name": "f", "parameters": {"properties": 5}}}]),
        400,
        "tools[0].function.parameters.properties",
    ),
    (
        "a tool whose parameters are no object",
        chat(tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}]),
        400,
        "tools[0].function.parameters.type",
    ),
    ("thousands of tools", chat(tools=[TOOL] * 5000), 400, "tools"),
    (
        "a call of another type",
        message(role="assistant", tool_calls=[CALL | {"type": "file"}]),
        400,
        "messages[0].tool_calls[0].type",
    ),
    (
        "arguments that are no object",
        message(role="assistant", tool_calls=[{"function": {"name": "f", "arguments": "[]"}}]),
        400,
        "messages[0].tool_calls[0].function.arguments",
    ),
    (
        "arguments that are not JSON",
        message(role="assistant", tool_calls=[{"function": {"name": "f", "arguments": "{"}}]),
        400,
        "messages[0].tool_calls[0].function.arguments",
    ),
    (
        "arguments that are nested deeply",
        message(role="assistant", tool_calls=[{"function": {"name": "f", "arguments": "[" * 9999}}]),
        400,
        "messages[0].tool_calls[0].function.arguments",
    ),
    ("an unknown model", chat(model="gpt-4"), 404, "model"),
    ("a path as model", chat(model="/etc/passwd"), 404, "model"),
    ("a parent folder as model", chat(model="../../etc"), 404, "model"),
    ("a path as adapter", chat(adapters="/etc/passwd"), 400, "adapters"),
]  # fmt: skip
HTTP: list[Row] = [
    ("a negative length", http_request(b"", headers="Content-Length: -5\r\n"), 400, None),
    ("a length in words", http_request(b"", headers="Content-Length: five\r\n"), 400, None),
    ("a length of 30 digits", http_request(b"", headers=f"Content-Length: {'9' * 30}\r\n"), 400, None),
    (
        "an announced body that is too large",
        http_request(b"", headers="Content-Length: 99999999\r\n"),
        413,
        None,
    ),
    ("a body that is too large", http_request(b" " * (8 * 2**20 + 1)), 413, None),
    (
        "chunks that are too large",
        http_request(b"%x\r\n%s\r\n" % (2**22, b" " * 2**22) * 3, headers="Transfer-Encoding: chunked\r\n"),
        413,
        None,
    ),
    ("two lengths of a body", SMUGGLED, 400, None),
    ("a chunk that is not one", http_request(b"zz\r\n", headers="Transfer-Encoding: chunked\r\n"), 400, None),
    ("a large header", http_request(b"", headers=f"X-Large: {'a' * 20_000}\r\n"), 431, None),
    ("a large path", http_request(b"", f"/{'a' * 17_000}", method="GET"), 431, None),
    ("a large query", http_request(b"", f"/health?{'a' * 17_000}", method="GET"), 431, None),
    ("no HTTP", b"hello\r\n\r\n", 400, None),
    ("no host", b"GET /v1/models HTTP/1.1\r\n\r\n", 400, None),
    ("another type", http_request(b"{}").replace(b"application/json", b"text/plain"), 415, None),
    ("a compressed body", http_request(b"{}", headers="Content-Encoding: gzip\r\n"), 415, None),
    ("an unknown transfer", http_request(b"", headers="Transfer-Encoding: gzip\r\n"), 501, None),
    ("no type", http_request(b"{}").replace(b"Content-Type: application/json\r\n", b""), 415, None),
    ("a wrong method", http_request(b"", method="GET"), 405, None),
    ("an unknown method", http_request(b"", method="HELLO"), 405, None),
    ("an unknown route", http_request(b"", "/v1/embeddings"), 404, None),
    ("a parent folder in the route", http_request(b"", "/v1/../health", method="GET"), 404, None),
    ("an encoded parent folder", http_request(b"", "/v1/%2e%2e/health", method="GET"), 404, None),
    ("a trailing slash", http_request(b"", "/health/", method="GET"), 404, None),
    ("a foreign host", http_request(b"{}").replace(b"localhost", b"evil.example"), 403, None),
    ("two hosts", http_request(b"{}", headers="Host: evil.example\r\n"), 400, None),
]
ROWS = [*NOT_JSON, *NUMBERS, *LISTS, *PROMPTS, *FEATURES, *HTTP]


@pytest.mark.parametrize(("sent", "status", "param"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_bad_input_is_refused_and_the_next_request_is_answered(
    server: RunningServer, sent: bytes, status: int, param: str | None
) -> None:
    before = server.chat().record["choices"]
    answer = parse(server.send_raw(sent))
    assert answer.status == status, answer.body
    assert answer.error["param"] == param
    assert server.chat().record["choices"] == before
    assert server.engine.running == []


def test_an_unknown_route_is_named(server: RunningServer) -> None:
    assert server.get("/v1/none?x=1").error["message"] == "GET /v1/none: not found"
    wrong = server.get("/v1/completions")
    assert wrong.error["message"] == "GET /v1/completions: method not allowed"
    assert (wrong.error["code"], wrong.headers["allow"]) == ("method_not_allowed", "POST")
    assert len(server.get("/" + "a" * 5000).error["message"]) < 300


def test_what_is_too_long_has_a_code_of_its_own(server: RunningServer) -> None:
    for sent in (complete(prompt=[5] * CONTEXT), complete(prompt=[5] * 2000, max_tokens=49)):
        error = parse(server.send_raw(sent)).error
        assert error["code"] == "context_length_exceeded"
        assert error["message"].startswith("the prompt is too long") == (error["param"] == "prompt")


def test_the_name_of_a_model_is_not_repeated(server: RunningServer) -> None:
    assert b"passwd" not in server.send_raw(chat(model="/etc/passwd"))
