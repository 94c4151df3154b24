"""Strings that end an answer, found across the borders of the pieces in which text arrives."""

from collections.abc import Iterable

from ..errors import ArgumentError


class StopStrings:
    """A filter for pieces of text: it passes on what comes before the first stop string, and holds back what
    may still become one. The stop that is complete first wins, so the cut does not depend on the pieces."""

    def __init__(self, stops: Iterable[str]):
        if isinstance(stops, str):
            stops = [stops]
        self._stops = tuple(stops)
        if not all(isinstance(stop, str) and stop for stop in self._stops):
            raise ArgumentError("", "stop", list(self._stops), "strings of at least one character")
        self._held = ""
        self.found = False

    def add(self, piece: str) -> str:
        """Take the next piece of text; return what can be shown for certain."""
        if self.found:
            return ""
        self._held += piece
        spans = [(self._held.find(stop), stop) for stop in self._stops]
        complete = [(start + len(stop), start) for start, stop in spans if start >= 0]
        self.found = bool(complete)
        safe = min(complete)[1] if self.found else len(self._held) - self._open_end()
        shown, self._held = self._held[:safe], self._held[safe:]
        return shown

    def finish(self) -> str:
        """Return what was held back in vain: no more text will come."""
        shown = "" if self.found else self._held
        self._held = ""
        return shown

    def _open_end(self) -> int:
        """The number of characters at the end with which a stop string begins."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            end = self._held[-length:]
            if any(len(stop) > length and stop.startswith(end) for stop in self._stops):
                return length
        return 0
