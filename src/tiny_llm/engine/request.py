"""What an engine answers and what a caller sees of it: requests, events, and the handle that brings them."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition
from typing import Literal

from ..checks.types import check_function, check_number, check_size, check_text, check_type
from ..errors import ArgumentError
from ..generation.result import TokenLogprobs
from ..runtime.device import is_forked
from ..sampling.grammar import Grammar
from ..sampling.params import GREEDY, Sampling

MOST_PROMPT_LOGPROBS = 20  # for each token of a prompt
EventReason = Literal["stop", "length", "cancelled", "deadline", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """One prompt with `n` answers, which share its computation.

    sampling: how tokens are chosen; without `max_tokens` an answer may fill the context.
    logprobs: number of most probable tokens to return for each position; None returns no log probabilities.
    prompt_logprobs: the same for each token of the prompt but the first; the prompt is then computed as a
        whole, without cached pages.
    grammar: what each answer must match.
    deadline: seconds after which the request ends, wherever it is.
    salt: prompts with different salts share no cached pages.
    id: for logs; need not be unique.
    progress: called with the tokens of the prompt that are computed, and their total, after each step that
        computes some; from the engine's thread, for which it must not wait.
    """

    prompt_ids: Sequence[int]
    sampling: Sampling = GREEDY
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    grammar: Grammar | None = None
    deadline: float | None = None
    salt: str = ""
    id: str = ""
    progress: Callable[[int, int], object] | None = None

    def __post_init__(self) -> None:
        name = "EngineRequest"
        check_type(name, "sampling", self.sampling, Sampling, "a Sampling")
        check_size(name, "n", self.n)
        check_text(name, "salt", self.salt)
        check_text(name, "id", self.id)
        for argument in ("logprobs", "prompt_logprobs"):
            count = getattr(self, argument)
            if count is not None:
                check_size(name, argument, count, minimum=0)
        if (self.prompt_logprobs or 0) > MOST_PROMPT_LOGPROBS:
            most = f"at most {MOST_PROMPT_LOGPROBS}"
            raise ArgumentError(name, "prompt_logprobs", self.prompt_logprobs, most)
        if self.progress is not None:
            check_function(name, "progress", self.progress)
        if self.grammar is not None:
            check_type(name, "grammar", self.grammar, Grammar, "a Grammar")
        if self.deadline is not None:
            check_number(name, "deadline", self.deadline)
            if not 0 < self.deadline < math.inf:
                raise ArgumentError(name, "deadline", self.deadline, "a number of seconds above 0")


@dataclass(frozen=True, slots=True)
class Event:
    """New tokens of one answer, and its end.

    choice: the number of the answer among those of its request.
    text: what became certain; the texts of an answer, joined, are its text.
    logprobs: one entry for each of `token_ids` if requested, else None.
    finish_reason: why the answer ended; None before its last event.
    stop_string: the one that ended the answer, with finish_reason "stop"; None if an end token did.
    prompt_logprobs: in the first event of an answer, if requested: one entry for each token of the prompt but
        the first; else None.
    error: with finish_reason "error".
    at: when the tokens were there, by `time.monotonic`.
    """

    choice: int
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] | None = None
    finish_reason: EventReason | None = None
    error: Exception | None = None
    stop_string: str | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    at: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Timings:
    """One answer that has ended. Seconds since it was submitted."""

    finish_reason: EventReason
    generated_tokens: int
    queue_seconds: float
    first_token_seconds: float | None  # None: it had no token
    seconds: float


class Handle(Iterator[Event], AsyncIterator[Event]):
    """The events of a request as they come; `for` and `async for` end after the last answer has ended.

    One reader at a time. `cached_tokens` is known after the first event.
    """

    def __init__(
        self,
        request_id: str,
        prompt_tokens: int,
        choices: int,
        cancel: Callable[[Handle], None],
        submitted_at: float,
    ):
        self.id = request_id
        self.submitted_at = submitted_at  # of `time.monotonic`
        self.prompt_tokens = prompt_tokens
        self.choices = choices
        self.cached_tokens = 0
        self.timings: dict[int, Timings] = {}  # of the answers that have ended, by number
        self._cancel = cancel
        self._open = choices  # answers without a last event
        self._events: deque[Event] = deque()
        self._changed = Condition()
        self._wake: Callable[[], object] | None = None  # the asyncio reader
        self._at_end: Callable[[], object] | None = None

    def cancel(self) -> None:
        """End the request within one step; may be called again, from any thread."""
        if self._open > 0 and not is_forked():
            self._cancel(self)

    def put(self, event: Event) -> None:
        """Add an event."""
        with self._changed:
            self._events.append(event)
            self._open -= event.finish_reason is not None
            self._changed.notify_all()
            wake, self._wake = self._wake, None
            at_end = self._at_end if self._open == 0 else None
        if wake is not None:
            wake()
        if at_end is not None:
            at_end()

    def call_at_end(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the last answer has ended, from the thread that ends it; it must not wait."""
        with self._changed:
            self._at_end = callback
            if self._open > 0:
                return
        callback()

    def __next__(self) -> Event:
        with self._changed:
            while not self._events:
                if self._open == 0:
                    raise StopIteration
                self._changed.wait()
            return self._events.popleft()

    async def __anext__(self) -> Event:
        while True:
            with self._changed:
                if self._events:
                    return self._events.popleft()
                if self._open == 0:
                    raise StopAsyncIteration
                arrived = asyncio.Event()
                self._wake = _waker(asyncio.get_running_loop(), arrived)
            await arrived.wait()


def _waker(loop: asyncio.AbstractEventLoop, arrived: asyncio.Event) -> Callable[[], None]:
    def wake() -> None:
        with suppress(RuntimeError):  # the loop of a reader that has left is closed
            loop.call_soon_threadsafe(arrived.set)

    return wake
