"""The events of one or several handles, in the order in which they come."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from ...engine import Event
from ..door import Handle
from .job import Job

NO_TOKENS = Event(0, finish_reason="length")  # of a choice that needs no engine


async def events(job: Job, handles: list[Handle]) -> AsyncIterator[tuple[int, Event]]:
    """Pairs of the index of a choice and its event."""
    async for index, event in _all(job, handles):
        yield index, _of_prompt(event) if job.prompts_only else event


def _of_prompt(event: Event) -> Event:
    """Without tokens of the answer."""
    reason = "length" if event.finish_reason == "stop" else event.finish_reason
    return replace(event, text="", token_ids=(), logprobs=None, finish_reason=reason, stop_string=None)


async def _all(job: Job, handles: list[Handle]) -> AsyncIterator[tuple[int, Event]]:
    if not handles:
        for index in range(len(job.choices)):
            yield index, NO_TOKENS
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
