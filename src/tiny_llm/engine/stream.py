"""One answer: as a stream of text, or whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from queue import SimpleQueue

from ..errors import AnswerError
from ..generation.result import FinishReason, Result, Statistics, TokenLogprobs
from .engine import Engine
from .request import EngineRequest, Event, Handle, Timings


class Stream(Iterator[str]):
    """The pieces of an answer as they are made; joined they are its text.

    `result` has the answer so far. The answer is computed from the first piece on, also while nobody reads.
    Dropping the stream, or `close()`, ends it early. Any thread may read or close it.
    """

    def __init__(self, request: EngineRequest, start: Callable[[], Engine], *, keeps_engine: bool = False):
        """`start` gives the engine at the first piece; it is closed at the end unless the caller keeps it."""
        self._request = request
        self._start = start
        self._keeps_engine = keeps_engine
        self._received = Received(len(request.prompt_ids), request.logprobs is not None)
        self._engine: Engine | None = None
        self._handle: Handle | None = None
        self._closed = False

    def __next__(self) -> str:
        if self._closed:
            raise StopIteration
        try:
            return self._next_text()
        except BaseException:
            self._end()
            raise

    def _next_text(self) -> str:
        if self._handle is None:
            self._arrival = time.monotonic()
            self._engine = self._start()
            self._handle = self._engine.submit(self._request)
        for event in self._handle:
            self._received.add(event, self._handle, self._arrival)
            if event.text:
                return event.text
            if event.error is not None:
                break
        if self._received.error is not None:
            raise self._received.error
        raise StopIteration

    @property
    def result(self) -> Result:
        """Text, tokens and statistics so far."""
        return self._received.result()

    def close(self) -> None:
        """End the answer here."""
        self._end()

    def _end(self) -> None:
        self._closed = True
        if self._handle is not None:
            self._handle.cancel()
        if self._engine is not None and not self._keeps_engine:
            self._engine.close()

    def __del__(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._engine is not None and not self._keeps_engine:
            self._engine.stop()  # the garbage collector must not wait


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

    def add(self, event: Event, handle: Handle, arrival: float) -> None:
        """The next event of a request that came at `arrival`."""
        self._text += event.text
        self._token_ids += event.token_ids
        if self._logprobs is not None:
            self._logprobs += event.logprobs or ()
        if event.finish_reason in ("stop", "length"):
            self._finish_reason = event.finish_reason
        self.error = event.error
        for _ in event.token_ids:
            self.statistics.count(event.at - arrival)
        self.statistics.cached_tokens = handle.cached_tokens
        if event.finish_reason is not None:
            self._end(handle.submitted_at - arrival, handle.timings[event.choice])

    def _end(self, waited: float, timings: Timings) -> None:
        """After the last event: what the engine measured."""
        if timings.first_token_seconds is not None:
            self.statistics.time_to_first_token = waited + timings.first_token_seconds
            self.statistics.decode_seconds = timings.seconds - timings.first_token_seconds
        self.statistics.generated_tokens = timings.generated_tokens

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
        received.add(event, handle, arrival)
    return received
