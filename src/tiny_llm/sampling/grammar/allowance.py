"""The processor time that the grammar of a request may take while its answers follow it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...errors import GrammarError

MOST = 1.0  # seconds that may be saved; a request begins with so many
PER_TOKEN = 0.005  # seconds that each token of an answer adds; most masks take less than a tenth of it
TOO_SLOW = "takes too much time for each token"


class Allowance:
    """Of one request, for all its answers: every request of a batch waits for a mask.

    Beyond it, each of its answers ends with a GrammarError, and `give_up` is called, which may refuse the
    grammar to later requests. Those that follow it already have allowances of their own.
    """

    def __init__(self, give_up: Callable[[str], None]):
        self._give_up = give_up
        self._left = MOST

    def of_another(self) -> "Allowance":
        """Of another request with the same grammar."""
        return Allowance(self._give_up)

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
