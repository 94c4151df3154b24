"""Grammars that were refused: asking again costs nothing."""

import time
from collections import OrderedDict

from .grammar import Grammar

MAX_REFUSALS = 256
FORGET_AFTER = 300.0  # seconds: a time limit may be exceeded because the machine was busy


class Refusals:
    """The newest refused grammars of one tokenizer, each with the reason."""

    def __init__(self) -> None:
        self._reasons: OrderedDict[Grammar, tuple[str, float]] = OrderedDict()

    def add(self, grammar: Grammar, reason: str) -> None:
        """Remember why a grammar cannot be used."""
        self._reasons.pop(grammar, None)
        self._reasons[grammar] = (reason, time.monotonic() + FORGET_AFTER)
        while len(self._reasons) > MAX_REFUSALS:
            self._reasons.popitem(last=False)

    def find(self, grammar: Grammar) -> str | None:
        """The reason; None if the grammar was not refused, or long ago."""
        reason, end = self._reasons.get(grammar, ("", 0.0))
        if time.monotonic() < end:
            return reason
        self._reasons.pop(grammar, None)
        return None
