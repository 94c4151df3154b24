"""What `bench serving` does with a server: requests at once, a prompt beside a stream, a prefix twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tiny_llm.loading import load_tokenizer
from tiny_llm_tools.benchmark.serving.answer import Answer
from tiny_llm_tools.benchmark.serving.client import Client, ServeRequest
from tiny_llm_tools.benchmark.serving.load import LoadRun, run_load
from tiny_llm_tools.benchmark.serving.workload import Words

STREAM_PROMPT = 128  # tokens of the prompt of the stream that is disturbed
QUIET_EVENTS = 24  # of that stream before the long prompt is sent
TAIL = 16  # tokens after a common prefix
POLL_SECONDS = 1e-3


class RequestFailed(Exception):
    """A request that must not fail; the text says why it did."""


class Prompts:
    """Prompts of words, as text: every server takes them, and none has seen one before."""

    def __init__(self, seed: int = 0):
        self._words = Words(load_tokenizer("tiny"))
        self._numbers = random.Random(seed)

    def ids(self, count: int) -> list[int]:
        return self._words.draw(count, self._numbers)

    def request(self, ids: list[int], output: int) -> ServeRequest:
        return ServeRequest(self._words.text(ids), len(ids), output)

    def requests(self, count: int, prompt: int, output: int) -> list[ServeRequest]:
        return [self.request(self.ids(prompt), output) for _ in range(count)]


def at_once(client: Client, requests: Sequence[ServeRequest]) -> LoadRun:
    """All answers; RequestFailed if one failed."""
    run = asyncio.run(run_load(client, requests, [0.0] * len(requests)))
    if run.interrupted:
        raise KeyboardInterrupt
    for answer in run.answers:
        _check(answer)
    return run


def check_lengths(answers: Sequence[Answer], tokens: int) -> None:
    """RequestFailed if one is shorter. A server that does not count its tokens sends each as an event."""
    for answer in answers:
        found = answer.output_tokens if answer.has_usage else answer.events
        if found < tokens:
            raise RequestFailed(f"an answer ended after {found} of {tokens} tokens")


def times_of_a_prefix(client: Client, prompts: Prompts, tokens: int, output: int) -> tuple[float, float]:
    """The times to the first token of two requests, one after the other, whose prompts begin alike."""
    prefix = prompts.ids(tokens)
    first, second = (
        at_once(client, [prompts.request(prefix + prompts.ids(TAIL), output)]).answers[0].ttft
        for _ in range(2)
    )
    return first, second


@dataclass(frozen=True, slots=True)
class Disturbed:
    """A stream during which a long prompt came in: its gaps without and with that, and all seconds."""

    quiet: list[float]
    during: list[float]
    seconds: float


def disturb(client: Client, prompts: Prompts, prompt: int, output: int) -> Disturbed:
    """Send a prompt while a stream of `output` tokens runs; it has one token for an answer."""
    stream = prompts.request(prompts.ids(STREAM_PROMPT), output)
    long = prompts.request(prompts.ids(prompt), 1)
    running, disturbing = Answer(0, 0.0), Answer(0, 0.0)

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(client.ask(stream, running))
            while len(running.times) < QUIET_EVENTS and not first.done():
                await asyncio.sleep(POLL_SECONDS)
            group.create_task(client.ask(long, disturbing))

    asyncio.run(run())
    for answer in (running, disturbing):
        _check(answer)
    pairs = list(zip(running.times, running.times[1:], strict=False))
    begin, end = disturbing.begin, disturbing.times[0]
    during = [after - before for before, after in pairs if after >= begin and before <= end]
    if not during:
        raise RequestFailed("the stream had ended before the prompt was sent")
    return Disturbed(
        quiet=[after - before for before, after in pairs if after < begin],
        during=during,
        seconds=max(running.end, disturbing.end) - running.begin,
    )


def _check(answer: Answer) -> None:
    if answer.failure is not None:
        raise RequestFailed(f"a request failed: {answer.failure}")
