"""The events of one or several handles, in the order in which they come."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from ...engine.events import EventReason
from ...generation.result import TokenLogprobs
from ..door import Event, Handle
from .job import Job


@dataclass(frozen=True, slots=True)
class NoTokens:
    """The event of a choice that needs no engine."""

    choice: int = 0
    text: str = ""
    token_ids: Sequence[int] = ()
    logprobs: Sequence[TokenLogprobs] | None = None
    finish_reason: EventReason | None = "length"
    error: Exception | None = None


async def events(job: Job, handles: list[Handle]) -> AsyncIterator[tuple[int, Event]]:
    """Pairs of the index of a choice and its event."""
    if not handles:
        for index in range(len(job.choices)):
            yield index, NoTokens()
    elif len(handles) == 1:
        async for event in handles[0]:
            yield event.choice, event
    else:
        async for pair in _joined(job, handles):
            yield pair


async def _joined(job: Job, handles: list[Handle]) -> AsyncIterator[tuple[int, Event]]:
    queue: asyncio.Queue[tuple[int, Event] | BaseException | None] = asyncio.Queue()

    async def follow(first: int, handle: Handle) -> None:
        try:
            async for event in handle:
                queue.put_nowait((first + event.choice, event))
            queue.put_nowait(None)
        except Exception as error:
            queue.put_nowait(error)

    tasks = [
        asyncio.create_task(follow(number * job.choices_per_request, handle))
        for number, handle in enumerate(handles)
    ]
    try:
        running = len(tasks)
        while running:
            item = await queue.get()
            if item is None:
                running -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
