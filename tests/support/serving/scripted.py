"""A server that sends what a script says, right or wrong, to each connection in turn."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"
Script = Sequence[bytes | float]  # bytes to send, and seconds to wait


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(record: Any) -> bytes:
    return chunk(b"data: " + json.dumps(record).encode() + b"\n\n")


def token(text: str, finish_reason: str | None = None) -> bytes:
    """The event of a completion."""
    return event({"choices": [{"index": 0, "text": text, "finish_reason": finish_reason}]})


def usage(prompt: int, output: int) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": output}})


def plain(status: str, body: bytes, kind: str = "application/json") -> bytes:
    """A whole response with a length."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        head = b""
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            head += line
        fields = dict(part.lower().split(b": ", 1) for part in head.splitlines()[1:])
        body = self.rfile.read(int(fields.get(b"content-length", 0)))
        self.server.received.append((head, body))
        try:
            for step in self.server.script_for(head):
                if isinstance(step, bytes):
                    self.wfile.write(step)
                else:
                    time.sleep(step)
        except OSError:
            pass  # the client has gone


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, scripts: Sequence[Script], models: bytes):
        self.received: list[tuple[bytes, bytes]] = []
        self._scripts = list(scripts)
        self._models = models
        self._lock = threading.Lock()
        self._asked = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def script_for(self, head: bytes) -> Script:
        """The list of models for a GET; else the next script, and the last one again after that."""
        if head.startswith(b"GET"):
            return [self._models]
        with self._lock:
            self._asked += 1
            return self._scripts[min(self._asked, len(self._scripts)) - 1]


@contextmanager
def scripted(*scripts: Script, models: bytes | None = None) -> Iterator[_Server]:
    """By default its only model is "m"."""
    cards = plain("200 OK", json.dumps({"data": [{"id": "m"}]}).encode())
    with _Server(scripts, cards if models is None else models) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
