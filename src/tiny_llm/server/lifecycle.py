"""Whether the server accepts requests, and how many it is answering."""

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import Draining


class Lifecycle:
    """Used from the event loop only."""

    def __init__(self) -> None:
        self.draining = False
        self.in_flight = 0

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Count a request while it is answered; refuse it if the server is about to stop."""
        if self.draining:
            raise Draining
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
