"""Unusual input over raw sockets that is served, and what is said about it."""

from __future__ import annotations

import logging

import pytest

from tiny_llm.server.api import decode

from ...support.serving.running import RunningServer
from .raw_requests import (
    CHUNKED,
    HELLO,
    MESSAGES,
    REFUSAL,
    chat,
    chat_with,
    complete,
    http_request,
    message,
    parse,
)

ORIGIN = "Origin: http://evil.example\r\n"
ACCEPTED = [
    ("unknown fields", chat(surprise={"a": [1]}, user="u", metadata={"a": "b"})),
    ("duplicate keys: the last one wins", chat_with('"max_tokens": -1, "max_tokens": 2')),
    ("null for a default", chat(temperature=None, stop=None, n=None, logit_bias=None)),
    ("control characters", message(role="user", content="a\x00b\u202ec\x1b[31m")),
    ("ids as prompt", complete(prompt=[5, 6])),
    ("lists of ids as prompt", complete(prompt=[[5, 6], [7]])),
    ("texts as prompt", complete(prompt=["a", "b"])),
    ("parts of text", message(role="user", content=[{"type": "text", "text": "a"}])),
    ("seed -1", chat(seed=-1)),
    ("neutral values", chat(presence_penalty=0, repetition_penalty=1, top_k=-1, min_p=0, ignore_eos=False)),
    ("top_k 0", chat(top_k=0)),
    ("content null of an answer", chat(messages=[*MESSAGES, {"role": "assistant", "content": None}])),
    ("a refused answer", message(role="assistant", content=None, refusal="No.")),
    ("a part that refuses", message(role="assistant", content=[REFUSAL | {"refusal": "No."}])),
    ("plain text as format", chat(response_format={"type": "text"})),
    ("chunked", http_request(CHUNKED, headers="Transfer-Encoding: chunked\r\n")),
    ("a type with parameters", http_request(HELLO).replace(b"application/json", b"Application/JSON; a=b")),
    ("an encoding that is none", http_request(HELLO, headers="Content-Encoding: Identity\r\n")),
    ("no alternatives", chat(top_logprobs=0)),
    ("an answer up to the end of the context", complete(prompt=[5] * 2000, max_tokens=48)),
    ("a format that is off beside another", chat(structured_outputs={"regex": "a+", "json_object": False})),
    ("many choices", chat(structured_outputs={"choice": ["a"] * 1024})),
    ("a foreign origin", http_request(HELLO, headers=ORIGIN)),
]  # fmt: skip


@pytest.mark.parametrize("sent", [row[1] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED])
def test_unusual_input_is_served(server: RunningServer, sent: bytes) -> None:
    answer = parse(server.send_raw(sent))
    assert answer.status == 200, answer.body
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_an_unknown_field_is_logged_once(
    server: RunningServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a part of its name, and not without end: clients may send any number of names."""
    long = "y" * 1000
    with caplog.at_level(logging.INFO, "tiny_llm"):
        for _ in range(2):
            assert server.chat(surprising_once=1, **{long: 1}).status == 200
        monkeypatch.setattr(decode, "MAX_NAMES_LOGGED", len(decode._seen))
        assert server.chat(one_too_many=1).status == 200
    lines = [record.getMessage() for record in caplog.records]
    for name in ("surprising_once", long[:64]):
        assert lines.count(f"unknown field {name}: accepted, without effect") == 1
    assert "one_too_many" not in "".join(lines)


def test_a_preflight_request_of_a_browser_gets_no_permission(server: RunningServer) -> None:
    headers = f"{ORIGIN}Access-Control-Request-Method: POST\r\n"
    answer = parse(server.send_raw(http_request(b"", method="OPTIONS", headers=headers)))
    assert answer.status == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]
