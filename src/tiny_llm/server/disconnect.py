"""Notices that a client has gone while its answer is computed."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.types import Receive


class Watch:
    """`gone` is true after the client has closed the connection."""

    gone = False


@contextmanager
def watch(receive: Receive, cancel: Callable[[], None]) -> Iterator[Watch]:
    """Call `cancel` as soon as the client has gone. The body must have been read completely before."""
    seen = Watch()

    async def wait() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        seen.gone = True
        cancel()

    task = asyncio.create_task(wait())
    try:
        yield seen
    finally:
        task.cancel()
