"""The turns of a conversation, of which the oldest are dropped when the context is full."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import ArgumentError
from ..generation.messages import messages

USUAL_ANSWER = 1024  # tokens kept free for an answer, or a quarter of the context if that is less


@dataclass(frozen=True, slots=True)
class Prompt:
    """The text of a prompt with earlier turns and a question, and the number of turns it drops."""

    text: str
    dropped_turns: int


class Conversation:
    """The turns so far, each a question and its answer.

    `write` makes a prompt from messages, `count` returns its number of tokens. `context` is the maximum
    number of tokens of prompt and answer. `dropped_turns` counts the turns that were dropped.
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
        self._leaving = 0  # number of turns to drop once the question is answered

    def check_system(self) -> None:
        """Check that the template takes the system message, and that a short question fits after it."""
        shortest = self._count(self._prompt(0, "Hello."))
        if shortest >= self._context:
            expected = f"fewer than the context of {self._context}"
            raise ArgumentError("", "system", f"{shortest} tokens with a short question", expected)

    def ask(self, question: str, max_tokens: int | None = None) -> Prompt:
        """The prompt for a question after the earlier turns; the oldest turns are dropped if it does not fit.

        Space is kept for `max_tokens`, or for a usual answer if the context is not longer than that. If
        turns are dropped, half of the context is freed, so that the next prompts fit and begin like this
        one, which a prompt cache can reuse. `answered` then makes it final. A question too long by itself
        drops no turns.
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
        """Add the turn of the last `ask`."""
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
