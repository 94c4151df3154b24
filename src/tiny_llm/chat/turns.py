"""A conversation: every turn is told again, and where the context ends the oldest turns are let go."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import ArgumentError
from ..generation.messages import messages

USUAL_ANSWER = 1024  # tokens that are kept free, or a quarter of the context if that is less


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation with one more question, as the model reads it, and how many turns it leaves out."""

    text: str
    dropped_turns: int


class Conversation:
    """The turns so far, each a question and its answer.

    `write` makes a prompt of messages and `count` tells its tokens. `context` is the most of them, the answer
    included. `dropped_turns` counts those that were let go.
    """

    def __init__(
        self,
        write: Callable[[list[dict[str, str]]], str],
        count: Callable[[str], int],
        *,
        context: int,
        system: str = "",
    ):
        self.turns: list[tuple[str, str]] = []
        self.dropped_turns = 0
        self._write = write
        self._count = count
        self._context = context
        self._system = system
        self._leaving = 0  # turns that go when the question is answered

    def check_system(self) -> None:
        """Refuse a system message that leaves no room for a short question, or that the template refuses."""
        shortest = self._count(self._prompt(0, "Hello."))
        if shortest >= self._context:
            expected = f"fewer than the context of {self._context}"
            raise ArgumentError("", "system", f"{shortest} tokens with a short question", expected)

    def ask(self, question: str, max_tokens: int | None = None) -> Prompt:
        """The prompt of a question behind the turns, of which the oldest are left out if it does not fit.

        Room is kept for `max_tokens`, or of what is usual if the context is no longer than that.
        Where turns are left out half of the context is freed: the next ones find room, and what a cache holds
        stays good. They are gone when the question is `answered`; one that is too long by itself costs none.
        """
        self._leaving = 0
        room = self._context - self._reserve(max_tokens)
        text = self._prompt(0, question)
        if not self.turns or self._count(text) <= room:
            return Prompt(text, 0)
        enough = min(room, self._context // 2)
        every = len(self.turns)
        dropped = 1 + bisect_left(
            range(1, every), True, key=lambda n: self._count(self._prompt(n, question)) <= enough
        )
        shorter = self._prompt(dropped, question)
        if self._count(shorter) >= self._context:
            return Prompt(text, 0)
        self._leaving = dropped
        return Prompt(shorter, dropped)

    def answered(self, question: str, answer: str) -> None:
        """Take in the turn that was asked for last."""
        del self.turns[: self._leaving]
        self.dropped_turns += self._leaving
        self._leaving = 0
        self.turns.append((question, answer))

    def _reserve(self, max_tokens: int | None) -> int:
        if max_tokens is not None and max_tokens < self._context:
            return max_tokens
        return min(USUAL_ANSWER, self._context // 4)

    def _prompt(self, dropped: int, question: str) -> str:
        return self._write(messages(self._system, self.turns[dropped:], question))
