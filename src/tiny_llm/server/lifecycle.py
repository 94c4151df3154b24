"""Whether the server accepts requests, and how many it is answering."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .errors import ApiError


class Lifecycle:
    """Used from the event loop only, but `drain`, which any thread and a signal handler may call."""

    def __init__(self) -> None:
        self.stop_at: float | None = None  # when the requests in flight are cut; None: no drain has begun
        self.in_flight = 0
        self._cuts: list[Callable[[ApiError], object]] = []  # one for each request in flight
        self._has_cut = False

    def drain(self, seconds: float) -> None:
        """Accept no more requests; those in flight have so many seconds."""
        self.stop_at = time.monotonic() + seconds

    @property
    def draining(self) -> bool:
        return self.stop_at is not None

    @property
    def over(self) -> bool:
        """Whether a drain has ended: all requests have been answered, or their time is up."""
        return self.stop_at is not None and (self.in_flight == 0 or time.monotonic() > self.stop_at)

    def check(self) -> None:
        """503 during a drain."""
        if self.stop_at is None:
            return
        seconds = max(math.ceil(self.stop_at - time.monotonic()), 0)
        sentence = (
            "the server is shutting down: it accepts no new requests, "
            f"and those that it has must end within {seconds} s"
        )
        raise ApiError(503, sentence, code="draining")

    def cut(self) -> None:
        """End all requests in flight with an error, also those that come to a block of `cutting` later."""
        self._has_cut = True
        for each in list(self._cuts):
            each(_not_answered())

    @contextmanager
    def cutting(self, callback: Callable[[ApiError], object]) -> Iterator[None]:
        """`cut` ends the request of this block by this callback."""
        self._cuts.append(callback)
        try:
            if self._has_cut:
                callback(_not_answered())
            yield
        finally:
            self._cuts.remove(callback)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Count a request while it is answered; refuse it if the server is about to stop."""
        self.check()
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1


def _not_answered() -> ApiError:
    return ApiError(503, "the server has shut down before the answer was complete", code="draining")
