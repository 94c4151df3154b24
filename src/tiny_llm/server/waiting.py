"""What a request waits for: a thread for work that would hold up the event loop, within its time limit."""

import asyncio
import contextvars
import math
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from .errors import ApiError

Result = TypeVar("Result")


class Threads:
    """A few threads, and a limit of the calls that they have or that wait for them. For one event loop.

    A call waits in the event loop: one that is cancelled there leaves the line at once and never begins. One
    that has begun keeps its thread, and its place, until it ends.
    """

    def __init__(self, name: str, threads: int, most: float = math.inf):
        self._name = name
        self._most = most
        self._calls = 0
        self._free = asyncio.Semaphore(threads)
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, function: Callable[..., Result], *arguments: object) -> Result:
        """The result of a call; its log lines have the id of this request. 429 beyond the limit."""
        if self._calls >= self._most:
            sentence = f"too many requests wait for their {self._name}, try again later"
            raise ApiError(429, sentence, code=f"{self._name}_queue_full")
        self._calls += 1
        try:
            await self._free.acquire()
        except BaseException:
            self._calls -= 1
            raise
        loop = asyncio.get_running_loop()

        def ended(_: Future[Result]) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._end)

        try:
            call = self._executor.submit(contextvars.copy_context().run, function, *arguments)
        except BaseException:  # the system gives no more threads
            self._end()
            raise
        call.add_done_callback(ended)
        try:
            return await asyncio.wrap_future(call)
        finally:
            del call  # this frame and the call's error would keep each other, and the arguments

    def _end(self) -> None:
        self._calls -= 1
        self._free.release()


class Deadline:
    """The time limit of a request, from its arrival: in every line that it waits in, and then in the engine.

    `seconds` None is no limit.
    """

    def __init__(self, seconds: float | None):
        self._ends_at = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """The seconds that are left, more than 0; 503 if there are none."""
        if self._ends_at is None:
            return None
        seconds = self._ends_at - time.monotonic()
        if seconds <= 0:
            raise too_late()
        return seconds

    async def limit(self, work: Awaitable[Result]) -> Result:
        """The result of this work, which is cancelled when the time is over: then 503."""
        seconds = None if self._ends_at is None else self._ends_at - time.monotonic()
        try:
            async with asyncio.timeout(seconds) as limit:
                return await work
        except TimeoutError as error:
            if limit.expired():
                raise too_late() from error
            raise


def too_late() -> ApiError:
    sentence = "the answer took longer than its time limit"
    return ApiError(503, sentence, code="deadline", retry=False)
