"""The processor time that a grammar may take while answers follow it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...errors import GrammarError

MOST = 1.0  # seconds that may be saved; a grammar begins with so many
PER_TOKEN = 0.005  # seconds that each token of an answer adds; most masks take less than a tenth of it
TOO_SLOW = "takes too much time for each token"


class Allowance:
    """Of one grammar, for all its answers: every request of a batch waits for a mask.

    Beyond it, `give_up` is called, and each answer with this grammar ends with a GrammarError.
    """

    def __init__(self, give_up: Callable[[str], None]):
        self._give_up = give_up
        self._left = MOST

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Subtract the processor time of this block."""
        self._check()
        start = time.thread_time()
        try:
            yield
        finally:
            self._left -= time.thread_time() - start
            if self._left < 0:
                self._give_up(TOO_SLOW)
        self._check()

    def earn(self, tokens: int) -> None:
        """Add the time of so many tokens of an answer."""
        if self._left >= 0:
            self._left = min(MOST, self._left + tokens * PER_TOKEN)

    def _check(self) -> None:
        if self._left < 0:
            raise GrammarError(f"it {TOO_SLOW}")
