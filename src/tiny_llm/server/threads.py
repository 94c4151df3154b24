"""Threads for work that would hold up the event loop."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .errors import ApiError

Result = TypeVar("Result")


class Threads:
    """A few threads, and a limit of the calls that they have or that wait for them. For one event loop."""

    def __init__(self, name: str, threads: int, most: int):
        self._name = name
        self._most = most
        self._calls = 0
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, function: Callable[..., Result], *arguments: object) -> Result:
        """The result of a call; its log lines have the id of this request. 429 beyond the limit."""
        if self._calls >= self._most:
            sentence = f"too many requests wait for their {self._name}, try again later"
            raise ApiError(429, sentence, code=f"{self._name}_queue_full")
        self._calls += 1
        run = contextvars.copy_context().run
        call = asyncio.get_running_loop().run_in_executor(self._executor, run, function, *arguments)
        call.add_done_callback(self._end)
        return await call

    def _end(self, _: object) -> None:
        self._calls -= 1
