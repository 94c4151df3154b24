"""Builds the pages again when a file changes, and tells the open ones."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from watchfiles import awatch


class Changes:
    def __init__(self, watched: Sequence[Path], build: Callable[[], object]):
        self._watched, self._build = watched, build
        self._open: set[asyncio.Queue[str | None]] = set()

    @asynccontextmanager
    async def watching(self, app: Starlette) -> AsyncIterator[None]:
        """The lifespan of the application."""
        task = asyncio.create_task(self._watch())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def _watch(self) -> None:
        async for _ in awatch(*self._watched):
            await asyncio.to_thread(self._build)
            self._send("data: built\n\n")

    async def stream(self, request: Request) -> StreamingResponse:
        """Server-sent events, one after each build."""
        return StreamingResponse(self._events(), media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[str]:
        events: asyncio.Queue[str | None] = asyncio.Queue()
        self._open.add(events)
        try:
            yield ": waiting for a change\n\n"
            while event := await events.get():
                yield event
        finally:
            self._open.discard(events)

    def close(self) -> None:
        """End the open streams."""
        self._send(None)

    def _send(self, event: str | None) -> None:
        for events in self._open:
            events.put_nowait(event)
