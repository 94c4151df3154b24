"""From a job to its answer: one JSON object, or the events of a stream."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from ...engine import Event
from ...errors import ArgumentError
from ..errors import ApiError, as_api_error, refused
from ..metrics import Meter
from ..models import HandleProtocol
from ..waiting import too_late
from .job import Job, Usage, encode

NO_TOKENS = Event(0, finish_reason="length")  # of a choice that needs no engine
LOG = logging.getLogger(__name__)
LENGTHS = {"prompt_ids": "prompt", "max_tokens": "max_tokens"}  # argument of the engine: our field


async def events(job: Job, handles: list[HandleProtocol]) -> AsyncIterator[tuple[int, Event]]:
    """Pairs of the index of a choice and its event."""
    if not handles:
        for index in range(len(job.choices)):
            yield index, NO_TOKENS
    elif len(handles) == 1:
        async for event in handles[0]:
            yield event.choice, event
    else:
        async for pair in _joined(job, handles):
            yield pair


def _of_prompt(event: Event) -> Event:
    """Without tokens of the answer."""
    reason = "length" if event.finish_reason == "stop" else event.finish_reason
    return replace(event, text="", token_ids=(), logprobs=None, finish_reason=reason, stop_string=None)


async def _joined(job: Job, handles: list[HandleProtocol]) -> AsyncIterator[tuple[int, Event]]:
    queue: asyncio.Queue[tuple[int, Event] | BaseException | None] = asyncio.Queue()

    async def follow(first: int, handle: HandleProtocol) -> None:
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


class RunningJob:
    """A job in the engine."""

    def __init__(self, job: Job, meter: Meter, grow: Callable[[int], None], seconds: float | None = None):
        """Submit all requests of the job, or none of them; they end after so many seconds.

        grow: called with the memory, in bytes, of tokens beyond those that the job expected.
        """
        self.job = job
        self._meter = meter
        self._grow = grow
        self._expected = job.expected_tokens
        self._generated = 0
        self._begun = False  # whether `encoder.started` was sent
        self._reason = "stop"
        self._cut = ApiError(503, "the answer was cancelled", code="cancelled")
        self.handles: list[HandleProtocol] = []
        try:
            for request in job.requests:
                self.handles.append(job.model.engine.submit(replace(request, deadline=seconds)))
        except ArgumentError as error:
            self.cancel()
            raise _never_fits(error) from error
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        for handle in self.handles:
            handle.cancel()

    def cut(self, error: ApiError) -> None:
        """Cancel, and answer with this error."""
        self._cut = error
        self.cancel()

    async def whole(self) -> bytes:
        """The answer when all choices have ended; an ApiError if one has failed."""
        try:
            async with aclosing(self._deltas()) as deltas:
                async for _ in deltas:
                    pass
        except BaseException:
            self._reason = "error" if self._reason == "stop" else self._reason
            self.cancel()
            raise
        finally:
            self._meter.finish(self._reason)
        return encode(self.job.encoder.whole(self.job, self._usage()))

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """The events of the answer, or of the part of it before an error."""
        job, encoder = self.job, self.job.encoder
        try:
            for sent in encoder.begin(job):
                yield sent
            async with aclosing(self._deltas()) as deltas:
                async for delta in deltas:
                    for sent in self._first():
                        yield sent
                    yield encoder.chunk(job, delta)
            for sent in (*self._first(), *encoder.end(job, self._usage())):
                yield sent
        except Exception as error:
            for sent in self._fail(error):
                yield sent
        finally:
            self.cancel()
            self._meter.finish(self._reason)

    def _first(self) -> Iterator[bytes]:
        """What comes once, before the first delta."""
        if not self._begun:
            self._begun = True
            yield from self.job.encoder.started(self.job, self._usage())

    def _fail(self, error: Exception) -> Iterator[bytes]:
        """The end of a stream with an error."""
        self._reason = "error" if self._reason == "stop" else self._reason
        failure = as_api_error(error)
        if failure.status == 500:
            LOG.error("a stream failed", exc_info=error)
        error.__traceback__ = None  # its frames keep the event or the `RunningJob` that keeps it
        return self.job.encoder.fail(self.job, failure)

    async def _deltas(self) -> AsyncGenerator[dict[str, Any], None]:
        """Of all choices, until the engine has ended them; a choice may end before by itself."""
        choices, encoder, cut = self.job.choices, self.job.encoder, False
        async for index, event in events(self.job, self.handles):
            if encoder.answered_at is None:
                encoder.answered_at = time.perf_counter_ns()
            if self.job.prompts_only:
                event = _of_prompt(event)
            choice = choices[index]
            if choice.finish_reason is not None:
                continue  # tokens after its own end
            self._count(index, event)
            for delta in choice.deltas(event):
                yield delta
            cut = cut or (choice.finish_reason is not None and event.finish_reason is None)
            if cut and all(each.finish_reason is not None for each in choices):
                self.cancel()

    def _count(self, index: int, event: Event) -> None:
        """Count the tokens of an event; raise if it says that the answer cannot be completed."""
        new = len(event.token_ids)
        self._meter.event(index, new)
        self._generated += new
        if (beyond := min(new, self._generated - self._expected)) > 0:
            self._grow(beyond * self.job.token_memory)
        reason = event.finish_reason
        if reason is None:
            return
        self._reason = reason
        if reason == "error":
            raise event.error or RuntimeError("the engine failed without a reason")
        if reason == "deadline":
            raise too_late()
        if reason == "cancelled":
            raise self._cut

    def _usage(self) -> Usage:
        cached = sum(handle.cached_tokens for handle in self.handles)
        reasoning = sum(choice.reasoning_tokens for choice in self.job.choices)
        return Usage(self.job.prompt_tokens, self._generated, cached, reasoning)


def _never_fits(error: ArgumentError) -> ApiError:
    """What the engine refuses for its length has the code that clients know."""
    param = LENGTHS.get(error.argument)
    return refused(error) if param is None else refused(error, param, "context_length_exceeded")
