"""One request and its answer between two processes: as messages of ASGI, which pass through Ray."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from starlette.types import ASGIApp, Message, Scope

# Of a scope of ASGI; the rest holds objects of the process.
FIELDS = ("type", "method", "path", "raw_path", "query_string", "headers", "http_version", "scheme", "client")


def portable(scope: Scope) -> dict[str, Any]:
    return {name: scope[name] for name in FIELDS if name in scope}


async def exchange(
    app: ASGIApp, scope: dict[str, Any], body: bytes, pause: float = 0.0
) -> AsyncGenerator[list[Message], None]:
    """The messages of the answer, in lists of those that are ready at once.

    From one list of a stream to the next `pause` seconds pass, or the rest of the answer: each costs a call.

    Whoever stops to iterate has gone: the application gets to know, and ends the request by itself.
    """
    ready: asyncio.Queue[Message | None] = asyncio.Queue()
    gone = asyncio.Event()
    unread = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if unread:
            return unread.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def run() -> None:
        try:
            await app(scope, receive, ready.put)
        finally:
            ready.put_nowait(None)

    task = asyncio.create_task(run())
    ended = False
    try:
        while not ended:
            messages = [await ready.get()]
            while not ready.empty():
                messages.append(ready.get_nowait())
            ended = messages[-1] is None
            if sent := [message for message in messages if message is not None]:
                yield sent
            if pause and sent and sent[-1]["type"] == "http.response.body":
                await asyncio.wait([task], timeout=pause)
        await task
    finally:
        gone.set()
        await asyncio.wait([task])


async def whole_answer(app: ASGIApp, scope: dict[str, Any]) -> list[Message]:
    """Of a request without a body."""
    return [message async for messages in exchange(app, scope, b"") for message in messages]
