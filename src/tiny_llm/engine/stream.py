"""One answer: as a stream of text, or whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from queue import SimpleQueue

from ..errors import AnswerError
from ..generation.result import FinishReason, Result, Statistics, TokenLogprobs
from .engine import Engine
from .request import EngineRequest, Event, Handle


class Stream(Iterator[str]):
    """The pieces of an answer as they are made; joined they are its text.

    `result` has the answer so far. The answer is computed from the first piece on, also while nobody reads.
    Dropping the stream, or `close()`, ends it early. Any thread may read it, one at a time.
    """

    def __init__(self, request: EngineRequest, start: Callable[[], Engine], *, keeps_engine: bool = False):
        """`start` gives the engine at the first piece; it is closed at the end unless the caller keeps it."""
        self._received = Received(len(request.prompt_ids), request.logprobs is not None)
        # A function without `self`: in a reference cycle, an engine would wait for the garbage collector.
        self._pieces = _pieces(request, start, keeps_engine, self._received)

    def __next__(self) -> str:
        return next(self._pieces)

    @property
    def result(self) -> Result:
        """Text, tokens and statistics so far."""
        return self._received.result()

    def close(self) -> None:
        """End the answer here."""
        self._pieces.close()


def _pieces(
    request: EngineRequest, start: Callable[[], Engine], keeps_engine: bool, received: Received
) -> Generator[str]:
    arrival = time.monotonic()
    engine = start()
    try:
        handle = engine.submit(request)
        try:
            for event in handle:
                received.add(event, time.monotonic() - arrival)
                if event.finish_reason is not None:
                    received.end(handle, arrival)
                if event.text:
                    yield event.text
                if event.error is not None:
                    raise event.error
        finally:
            handle.cancel()
    finally:
        if not keeps_engine:
            engine.close()


def answer_one(request: EngineRequest, start: Callable[[], Engine]) -> Result:
    """The whole answer; `start` gives the engine, which is closed after it."""
    arrival = time.monotonic()
    ended: SimpleQueue[None] = SimpleQueue()
    with start() as engine:
        handle = engine.submit(request)
        handle.call_at_end(lambda: ended.put(None))  # nobody is woken for each token
        ended.get()
    received = received_all(request, handle, arrival)
    if received.error is not None:
        raise received.error
    return received.result()


class Received:
    """The events of one answer, joined."""

    def __init__(self, prompt_tokens: int, has_logprobs: bool):
        self.statistics = Statistics(prompt_tokens)
        self.error: Exception | None = None
        self._text = ""
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprobs] | None = [] if has_logprobs else None
        self._finish_reason: FinishReason | None = None

    def add(self, event: Event, seconds: float) -> None:
        """The next event, so many seconds after the beginning."""
        self._text += event.text
        self._token_ids += event.token_ids
        if self._logprobs is not None:
            self._logprobs += event.logprobs or ()
        if event.finish_reason in ("stop", "length"):
            self._finish_reason = event.finish_reason
        self.error = event.error
        for _ in event.token_ids:
            self.statistics.count(seconds)

    def end(self, handle: Handle, arrival: float) -> None:
        """After the last event: the seconds since `arrival` as the engine measured them."""
        timings, first = handle.timings[0], handle.timings[0].first_token_seconds
        if first is not None:
            self.statistics.time_to_first_token = handle.submitted_at - arrival + first
            self.statistics.decode_seconds = timings.seconds - first
        self.statistics.generated_tokens = timings.generated_tokens
        self.statistics.cached_tokens = handle.cached_tokens

    def result(self, error: AnswerError | None = None) -> Result:
        """The answer so far."""
        logprobs = None if self._logprobs is None else tuple(self._logprobs)
        return Result(
            self._text,
            tuple(self._token_ids),
            self._finish_reason,
            replace(self.statistics),
            logprobs,
            error,
        )


def received_all(request: EngineRequest, handle: Handle, arrival: float) -> Received:
    """Those of an answer that has ended."""
    received = Received(handle.prompt_tokens, request.logprobs is not None)
    for event in handle:
        received.add(event, 0.0)
    received.end(handle, arrival)
    return received
