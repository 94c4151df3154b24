"""Sends requests at their times, and waits for all answers."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from .answer import Answer
from .client import Client, ServeRequest

Report = Callable[[int, int], None]  # answers that have ended, and all


@dataclass(frozen=True, slots=True)
class LoadRun:
    """The answers to the requests that were sent, and the seconds until the last one ended."""

    answers: list[Answer]
    duration: float
    interrupted: bool = False


async def run_load(
    client: Client,
    requests: Sequence[ServeRequest],
    offsets: Sequence[float],
    max_concurrency: int | None = None,
    report: Report = lambda done, total: None,
) -> LoadRun:
    """Send each request at its offset, in seconds: an open loop. With `max_concurrency`, a request waits
    until fewer are in flight, and its times begin after that: with all offsets 0, a closed loop.

    A cancelled run (Ctrl-C) returns what was measured so far.
    """
    answers: list[Answer] = []
    slots = asyncio.Semaphore(max_concurrency) if max_concurrency else nullcontext()
    ended = 0

    async def ask(request: ServeRequest) -> None:
        nonlocal ended
        async with slots:
            answer = Answer(request.prompt_tokens, client.clock())
            answers.append(answer)
            await client.ask(request, answer)
            ended += 1
            report(ended, len(requests))

    report(0, len(requests))
    begin, interrupted = time.perf_counter(), False
    try:
        async with asyncio.TaskGroup() as group:
            for request, offset in zip(requests, offsets, strict=True):
                await asyncio.sleep(max(0.0, begin + offset - time.perf_counter()))
                group.create_task(ask(request))
    except asyncio.CancelledError:
        interrupted = True
    return LoadRun(answers, time.perf_counter() - begin, interrupted)
