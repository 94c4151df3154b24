"""What other threads tell the thread of an engine, which reads it before each step."""

from __future__ import annotations

import threading

from ..errors import Draining, EngineFailed, QueueFull
from ..scheduler import RequestState, Scheduler
from .answer import Answer
from .answers import Answers
from .request import Handle


class Mailbox:
    """New requests, cancelled ones, and the end. Nobody who leaves a message waits for a step."""

    def __init__(self, max_waiting: int):
        self._max_waiting = max_waiting
        self._submitted: list[tuple[RequestState, Answer]] = []
        self._cancelled: list[Handle] = []
        self.closing = False  # no new requests
        self.closed = False  # no further step
        self.failure: BaseException | None = None  # which the engine did not survive
        self._changed = threading.Condition()

    @property
    def unread(self) -> int:
        """The requests that the engine does not know yet."""
        return len(self._submitted)

    def submit(self, state: RequestState, answer: Answer, scheduler: Scheduler) -> None:
        """A new request for `scheduler`; raises if that cannot run it, or if too many wait."""
        with self._changed:
            if self.failure is not None:
                raise EngineFailed() from self.failure
            if self.closing:
                raise Draining()
            scheduler.check_fits(state)
            if len(self._submitted) + len(scheduler.waiting) >= self._max_waiting:
                raise QueueFull(self._max_waiting)
            self._submitted.append((state, answer))
            self._changed.notify_all()

    def cancel(self, handle: Handle) -> None:
        """A request that shall end."""
        with self._changed:
            self._cancelled.append(handle)
            self._changed.notify_all()

    def close(self) -> None:
        """No further step."""
        with self._changed:
            self.closing = self.closed = True
            self._changed.notify_all()

    def fail(self, error: BaseException) -> bool:
        """No further step, after this error; False if there was one before."""
        with self._changed:
            is_first = self.failure is None
            self.failure = self.failure or error
        return is_first

    def drain(self, answers: Answers, timeout: float | None) -> bool:
        """No new requests; wait until all `answers` have ended, and return whether they have."""
        with self._changed:
            self.closing = True
            return self._changed.wait_for(lambda: not self._submitted and not answers, timeout)

    # For the engine's thread.

    def read(self, answers: Answers) -> None:
        """Begin and end the requests of all messages."""
        with self._changed:
            for state, answer in self._submitted:
                answers.add(state, answer)
            self._submitted.clear()
            cancelled, self._cancelled = self._cancelled, []
        for handle in cancelled:
            answers.cancel(handle)

    def wake(self) -> None:
        """Those who wait for the last answer look again."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, timeout: float) -> None:
        """Until there is a message."""
        with self._changed:
            if not (self._submitted or self._cancelled or self.closed):
                self._changed.wait(timeout)
