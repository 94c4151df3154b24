"""A submitted request: its events, for a thread or for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from threading import Condition

from .events import Event
from .statistics import Timings


class Handle(Iterator[Event], AsyncIterator[Event]):
    """The events of a request as they come; `for` and `async for` end after the last answer has ended.

    One reader at a time. `cached_tokens` is known after the first event.
    """

    def __init__(
        self,
        request_id: str,
        prompt_tokens: int,
        choices: int,
        cancel: Callable[[], None],
        submitted_at: float,
    ):
        self.id = request_id
        self.submitted_at = submitted_at  # of `time.monotonic`
        self.prompt_tokens = prompt_tokens
        self.choices = choices
        self.cached_tokens = 0
        self.timings: dict[int, Timings] = {}  # of the answers that have ended, by number
        self.cancel = cancel  # ends the request within one step; may be called again, from any thread
        self._open = choices  # answers without a last event
        self._events: deque[Event] = deque()
        self._changed = Condition()
        self._wake: Callable[[], object] | None = None  # the asyncio reader
        self._at_end: Callable[[], object] | None = None

    def put(self, event: Event) -> None:
        """Add an event."""
        with self._changed:
            self._events.append(event)
            self._open -= event.finish_reason is not None
            self._changed.notify_all()
            wake, self._wake = self._wake, None
            at_end = self._at_end if self._open == 0 else None
        if wake is not None:
            wake()
        if at_end is not None:
            at_end()

    def call_at_end(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the last answer has ended, from the thread that ends it; it must not wait."""
        with self._changed:
            self._at_end = callback
            if self._open > 0:
                return
        callback()

    def __next__(self) -> Event:
        with self._changed:
            while not self._events:
                if self._open == 0:
                    raise StopIteration
                self._changed.wait()
            return self._events.popleft()

    async def __anext__(self) -> Event:
        while True:
            with self._changed:
                if self._events:
                    return self._events.popleft()
                if self._open == 0:
                    raise StopAsyncIteration
                arrived = asyncio.Event()
                self._wake = _waker(asyncio.get_running_loop(), arrived)
            await arrived.wait()


def _waker(loop: asyncio.AbstractEventLoop, arrived: asyncio.Event) -> Callable[[], None]:
    def wake() -> None:
        with suppress(RuntimeError):  # the loop of a reader that has left is closed
            loop.call_soon_threadsafe(arrived.set)

    return wake
