"""Strings that end an answer, found also where they span several pieces of text."""

from collections.abc import Iterable

from ..errors import ArgumentError


class StopStrings:
    """Passes on the text before the first stop string, and holds back an end that may still become one.

    The stop string that is complete first counts, so the cut does not depend on the pieces.
    """

    def __init__(self, stops: Iterable[str]):
        if isinstance(stops, str):
            stops = [stops]
        self._stops = tuple(stops)
        if not all(isinstance(stop, str) and stop for stop in self._stops):
            raise ArgumentError("", "stop", list(self._stops), "strings of at least one character")
        self._held = ""
        self.which: str | None = None  # the one that ended the answer

    @property
    def found(self) -> bool:
        """Whether the answer has ended."""
        return self.which is not None

    def add(self, piece: str) -> str:
        """Add the next piece of text; return the text that is certain to be part of the answer."""
        if self.found:
            return ""
        self._held += piece
        spans = [(self._held.find(stop), stop) for stop in self._stops]
        complete = [(start + len(stop), start, stop) for start, stop in spans if start >= 0]
        safe = len(self._held) - self._open_end()
        if complete:
            _, safe, self.which = min(complete)
        shown, self._held = self._held[:safe], self._held[safe:]
        return shown

    def finish(self) -> str:
        """End the text; return what was held back, as it did not become a stop string."""
        shown = "" if self.found else self._held
        self._held = ""
        return shown

    def _open_end(self) -> int:
        """The length of the longest end of the text that a stop string begins with."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            end = self._held[-length:]
            if any(len(stop) > length and stop.startswith(end) for stop in self._stops):
                return length
        return 0
