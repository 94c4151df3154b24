"""The turns of a conversation, of which the oldest are dropped when the context is full."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import ArgumentError
from ..generation.defaults import MAX_TOKENS
from ..generation.messages import build_messages


@dataclass(frozen=True, slots=True)
class FittedPrompt:
    """The text of a prompt with earlier turns and a question, and the number of turns it drops."""

    text: str
    dropped_turns: int


class Conversation:
    """The turns so far, each a question and its answer.

    `render` makes a prompt from messages, `count_tokens` returns its number of tokens. `context` is the
    maximum number of tokens of prompt and answer. `dropped_turns` counts the turns that were dropped.
    """

    def __init__(
        self,
        render: Callable[[list[dict[str, str]]], str],
        count_tokens: Callable[[str], int],
        *,
        context: int,
        system: str = "",
    ):
        self.turns: list[tuple[str, str]] = []
        self.dropped_turns = 0
        self._render = render
        self._count_tokens = count_tokens
        self._context = context
        self._system = system
        self._pending_drops = 0  # turns to drop in `add_turn`

    def check_system(self) -> None:
        """Check that the template takes the system message, and that a short question fits after it."""
        shortest = self._count_tokens(self._prompt(0, "Hello."))
        if shortest >= self._context:
            expected = f"fewer than the context of {self._context}"
            raise ArgumentError("", "system", f"{shortest} tokens with a short question", expected)

    def prompt_for(self, question: str, max_tokens: int | None = None) -> FittedPrompt:
        """The prompt for a question after the earlier turns; the oldest turns are dropped if it does not fit.

        Reserves `max_tokens` if that is less than the context, else the smaller of 1024 and a quarter of the
        context. If turns must be dropped, drops until the prompt fits half of the context, so that the next
        prompts share this prefix and hit the prompt cache. `turns` stay until `add_turn`. If the question
        alone is too long, no turn is dropped.
        """
        self._pending_drops = 0
        available = self._context - self._reserve(max_tokens)
        text = self._prompt(0, question)
        if not self.turns or self._count_tokens(text) <= available:
            return FittedPrompt(text, 0)
        target = min(available, self._context // 2)
        num_turns = len(self.turns)
        dropped = 1 + bisect_left(
            range(1, num_turns), True, key=lambda n: self._count_tokens(self._prompt(n, question)) <= target
        )
        shorter = self._prompt(dropped, question)
        if self._count_tokens(shorter) >= self._context:
            return FittedPrompt(text, 0)
        self._pending_drops = dropped
        return FittedPrompt(shorter, dropped)

    def add_turn(self, question: str, answer: str) -> None:
        """Add a question, for which `prompt_for` made the last prompt, and its answer."""
        del self.turns[: self._pending_drops]
        self.dropped_turns += self._pending_drops
        self._pending_drops = 0
        self.turns.append((question, answer))

    def _reserve(self, max_tokens: int | None) -> int:
        if max_tokens is not None and max_tokens < self._context:
            return max_tokens
        return min(MAX_TOKENS, self._context // 4)

    def _prompt(self, dropped: int, question: str) -> str:
        return self._render(build_messages(self._system, self.turns[dropped:], question))
