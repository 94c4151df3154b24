"""Notices that a client has gone while its request waits or its answer is computed."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from starlette.types import Receive

from .errors import ApiError

Result = TypeVar("Result")


def nothing() -> None:
    """At the end of a client for which nothing is done."""


class ClientGone(ApiError):
    """Nobody reads this error; it is for the log."""

    def __init__(self) -> None:
        super().__init__(503, "the client closed the connection before its answer began", code="cancelled")


class Client:
    """`gone` is true after the client has closed the connection."""

    def __init__(self) -> None:
        self.gone = False
        self._error: ApiError | None = None
        self._at_end: Callable[[], object] = nothing

    def when_gone(self, callback: Callable[[], object]) -> None:
        """Call this, instead of the callback before, as soon as the client is dropped or has gone."""
        self._at_end = callback
        if self._error is not None:
            callback()

    def leave(self) -> None:
        """The client has gone."""
        self.gone = True
        self.drop(ClientGone())

    def drop(self, error: ApiError) -> None:
        """Nothing more is done for this client, for this reason."""
        self._error = error
        self._at_end()

    async def wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of this work; if the client is dropped or goes before, it is cancelled: ApiError."""
        task = asyncio.create_task(work)
        self.when_gone(task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if self._error is not None and not (caller and caller.cancelling()):
                raise self._take_error() from None
            raise
        finally:  # else this frame, the task and its error would keep each other, and all that they have
            self._at_end = nothing
            del task

    def _take_error(self) -> ApiError:
        """To be raised, by which it gets frames that keep this client. Later work has another."""
        assert self._error is not None
        error, self._error = self._error, ClientGone()
        return error


@contextmanager
def watch(receive: Receive, client: Client) -> Iterator[None]:
    """See whether the client goes. The body must have been read completely before."""

    async def wait() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        client.leave()

    task = asyncio.create_task(wait())
    try:
        yield
    finally:
        task.cancel()
