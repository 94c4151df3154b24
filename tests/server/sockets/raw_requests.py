"""Requests over raw sockets: bytes that no client would send, and the answer to them."""

from __future__ import annotations

import json
from typing import Any

from ...support.serving.running import Answer

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
MESSAGES = [{"role": "user", "content": "Hello"}]


def http_request(body: bytes, path: str = CHAT, *, method: str = "POST", headers: str = "") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    if "content-length" not in headers.lower() and "transfer-encoding" not in headers.lower():
        head += f"Content-Length: {len(body)}\r\n"
    return f"{head}Content-Type: application/json\r\n{headers}\r\n".encode() + body


def chat(**fields: Any) -> bytes:
    return http_request(json.dumps({"messages": MESSAGES, "max_tokens": 4, **fields}).encode())


def chat_with(field: str) -> bytes:
    """A field that `json.dumps` does not write."""
    return http_request(b'{"messages": [{"role": "user", "content": "Hello"}], ' + field.encode() + b"}")


def complete(**fields: Any) -> bytes:
    return http_request(json.dumps({"prompt": "Once", "max_tokens": 4, **fields}).encode(), COMPLETIONS)


def message(**fields: Any) -> bytes:
    return chat(messages=[fields])


def parse(received: bytes) -> Answer:
    head, _, body = received.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return Answer(int(status.split()[1]), headers, body)


HELLO = json.dumps({"messages": MESSAGES, "max_tokens": 4}).encode()
CHUNKED = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (HELLO[:5], HELLO[5:], b""))
REFUSAL = {"type": "refusal"}
