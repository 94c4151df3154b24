"""A server of some engines on a free port, in a thread of this process, and plain requests to it."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tiny_llm.server.run import Server, bind
from tiny_llm.server.settings import Settings

SECONDS = 20  # after which a test fails


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def record(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error, which must have OpenAI's shape."""
        assert self.headers["content-type"] == "application/json"
        assert self.headers["x-request-id"]
        (error,) = self.record.values()
        assert list(error) == ["message", "type", "param", "code"]
        assert isinstance(error["message"], str)
        return error

    @property
    def events(self) -> list[Any]:
        """The records of a stream, which must end with [DONE]; comments are left out."""
        events = [event for event in self.body.decode().split("\n\n") if event and not event.startswith(":")]
        assert all(event.startswith("data: ") for event in events)
        *records, done = [event.removeprefix("data: ") for event in events]
        assert done == "[DONE]"
        return [json.loads(record) for record in records]


@dataclass
class RunningServer:
    server: Server
    address: tuple[str, int]
    engine: Any
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{self.address[0]}:{self.address[1]}"

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """`body` is bytes, or an object that becomes JSON."""
        connection = http.client.HTTPConnection(*self.address, timeout=SECONDS)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = {} if data is None else {"content-type": "application/json"}
        try:
            connection.request(method, path, data, {**kind, **self.headers, **(headers or {})})
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.request(
            "GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )

    def chat(self, **fields: Any) -> Answer:
        """A greedy answer of eight tokens, unless `fields` ask for another."""
        hello = [{"role": "user", "content": "Hello"}]
        body = {"messages": hello, "max_tokens": 8, "temperature": 0, **fields}
        return self.request("POST", "/v1/chat/completions", body)

    def complete(self, **fields: Any) -> Answer:
        body = {"prompt": "Once", "max_tokens": 8, "temperature": 0, **fields}
        return self.request("POST", "/v1/completions", body)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=SECONDS)

    def send_raw(self, data: bytes) -> bytes:
        """Everything that the server sends on a connection until it closes it."""
        with self.connect() as connection:
            connection.sendall(data)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    received = b""
    while part := connection.recv(65536):
        received += part
    return received


@contextmanager
def running(engine: Any, **settings: Any) -> Iterator[RunningServer]:
    """A server of one engine, named "fake", or of the engines of a dictionary."""
    engines = engine if isinstance(engine, dict) else {"fake": engine}
    bound = bind("127.0.0.1", 0)
    server = Server(engines, Settings(**settings))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[bound])), daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield RunningServer(server, bound.getsockname(), engine)
    finally:
        server.stop()
        thread.join(SECONDS)
        assert not thread.is_alive(), "the server did not stop"


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "nothing happened for a long time"
        time.sleep(0.002)
