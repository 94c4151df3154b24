"""Streams of events: server-sent ones, with comments while there is nothing to send, or lines of JSON."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.types import Message, Send

from .disconnect import Client

COMMENT = b": keep-alive\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would collect the events
]
KIND = b"content-type"
LINES = [(KIND, b"application/x-ndjson"), *(header for header in HEADERS if header[0] != KIND)]
SPACE = b" "  # before the next line: JSON allows it, and nothing else


class EventStream:
    """An ASGI response of server-sent events. Without a client it reads on, until the engine has ended.

    A client that does not read is disconnected by `Connection`; until then, sending waits for it.
    """

    def __init__(self, chunks: AsyncGenerator[bytes, None], client: Client, comment_after: float):
        self._chunks = chunks
        self._client = client
        self._comment_after = comment_after  # seconds
        self._sent_at = 0.0

    async def __call__(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        comments = asyncio.create_task(self._comment(send))
        try:
            async with aclosing(self._chunks) as chunks:
                async for chunk in chunks:
                    if self._client.gone:
                        continue  # until the engine has ended the request
                    await self._send(send, chunk)
        finally:
            comments.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, chunk: bytes) -> None:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._sent_at = asyncio.get_running_loop().time()

    async def _comment(self, send: Send) -> None:
        loop = asyncio.get_running_loop()
        self._sent_at = loop.time()
        while True:
            wait = self._sent_at + self._comment_after - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            else:
                await send({"type": "http.response.body", "body": COMMENT, "more_body": True})
                self._sent_at = loop.time()


def as_lines(send: Send) -> Send:
    """Sends an event stream whose chunks are lines: with the head of lines, and space instead of comments."""

    async def send_lines(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": LINES}
        elif message.get("body") == COMMENT:
            message = {**message, "body": SPACE}
        await send(message)

    return send_lines
