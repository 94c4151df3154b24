"""The time limit of a request, from its arrival: in every line that it waits in, and then in the engine."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from .errors import ApiError

Result = TypeVar("Result")


class Deadline:
    """Begins now. `seconds` None is no limit."""

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
