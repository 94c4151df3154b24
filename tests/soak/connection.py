"""One HTTP request over a raw connection, read piece by piece: a client may leave or be slow anywhere."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

SECONDS = 120.0  # without a byte: the answer is lost


class Lost(Exception):
    """The server sent nothing for a long time, or ended the connection before the answer."""


@dataclass
class Head:
    status: int
    headers: dict[str, str]


class Connection:
    """`sent_at` is when the request had been sent."""

    def __init__(self, port: int, request: bytes, slow: bool = False):
        self._port = port
        self._request = request
        self._limit = 256 if slow else 2**16  # bytes that are read before the kernel has to wait
        self.sent_at = 0.0

    async def __aenter__(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port, limit=max(self._limit, 2**14)
        )
        self._writer.write(self._request)
        self.sent_at = time.monotonic()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.transport.abort()

    async def head(self) -> Head:
        lines = (await self._wait(self._reader.readuntil(b"\r\n\r\n"))).decode("latin-1").split("\r\n")
        pairs = (line.partition(": ") for line in lines[1:] if line)
        return Head(int(lines[0].split()[1]), {name.lower(): value for name, _, value in pairs})

    async def whole(self, head: Head) -> bytes:
        """The body."""
        if "content-length" in head.headers:
            return await self._wait(self._reader.readexactly(int(head.headers["content-length"])))
        return b"".join([part async for part in self.parts()])

    async def parts(self) -> AsyncIterator[bytes]:
        """The chunks of a body, to its declared end."""
        while size := int(await self._wait(self._reader.readuntil(b"\r\n")), 16):
            yield (await self._wait(self._reader.readexactly(size + 2)))[:-2]
        await self._wait(self._reader.readuntil(b"\r\n"))

    async def _wait(self, reading: Any) -> bytes:
        try:
            received: bytes = await asyncio.wait_for(reading, SECONDS)
        except TimeoutError as error:
            raise Lost(f"nothing for {SECONDS:g} s") from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Lost("the connection ended before the answer") from error
        return received


def post(path: str, fields: dict[str, Any], request_id: str) -> bytes:
    """The bytes of a request with a JSON body."""
    body = json.dumps(fields).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"X-Request-Id: {request_id}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def records(connection: Connection) -> AsyncIterator[dict[str, Any] | None]:
    """The events of a stream; None for [DONE]. Comments are left out."""
    text = b""
    async for part in connection.parts():
        text += part
        *events, text = text.split(b"\n\n")
        for event in events:
            for line in event.split(b"\n"):
                if line.startswith(b"data: "):
                    data = line.removeprefix(b"data: ")
                    yield None if data == b"[DONE]" else json.loads(data)
