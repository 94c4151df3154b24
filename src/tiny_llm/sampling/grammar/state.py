"""Where one answer is in its grammar: which tokens may follow, and steps forward and back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import GrammarError

if TYPE_CHECKING:
    import llguidance

    from .allowance import Allowance


class GrammarState:
    """The state after the tokens of an answer so far; where nothing more may follow, end tokens may.

    GrammarError if the grammar exceeds llguidance's limits for a step or its `allowance` of time, or a token
    is not allowed.
    """

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        end_tokens: frozenset[int],
        allowance: Allowance,
        past_end: int = 0,
    ):
        self._matcher = matcher
        self._end_tokens = end_tokens
        self._allowance = allowance
        # End tokens where nothing else could follow: the matcher does not count these.
        self._past_end = past_end

    def copy(self) -> GrammarState:
        """An independent state after the same tokens, of another answer to the same request."""
        return GrammarState(self._matcher.deep_copy(), self._end_tokens, self._allowance, self._past_end)

    def start(self) -> GrammarState:
        """A state at the beginning, of another request. For a state at the beginning."""
        return GrammarState(self._matcher.deep_copy(), self._end_tokens, self._allowance.of_another())

    @property
    def is_complete(self) -> bool:
        """Whether the answer may end here."""
        return self._matcher.is_accepting()

    def allowed(self, held_back: Collection[int] = ()) -> bytes:
        """A bit for each token, the lowest of each byte first: whether it may follow.

        Tokens of `held_back` may not, unless no other may.
        """
        with self._allowance.spending():
            mask = self._matcher.compute_bitmask()
        self._check()
        if held_back:
            others = bytearray(mask)
            for token in held_back:
                if token < 8 * len(others):
                    others[token // 8] &= ~(1 << token % 8)
            if others.count(0) < len(others):
                return bytes(others)
        return mask

    def accept(self, tokens: Sequence[int]) -> None:
        """Add tokens of the answer, which earn processor time."""
        self._allowance.earn(len(tokens))
        self._add(tokens)

    @contextmanager
    def trying(self) -> Iterator[Trial]:
        """A block whose tokens are removed at its end. They earn no time: drafts may be wrong."""
        trial = Trial(self)
        try:
            yield trial
        finally:
            self.rollback(trial.added)

    def _add(self, tokens: Sequence[int]) -> None:
        with self._allowance.spending():
            for token in tokens:
                self._check()
                if self._matcher.is_stopped():
                    if token not in self._end_tokens:
                        raise GrammarError(f"the token {token} follows its end")
                    self._past_end += 1
                elif not self._matcher.consume_token(token):
                    self._check()

    def count_valid(self, tokens: Sequence[int]) -> int:
        """How many of these tokens, from the first, may follow; the state stays."""
        self._check()
        with self._allowance.spending():
            return self._matcher.validate_tokens(list(tokens))

    def rollback(self, count: int) -> None:
        """Remove the newest tokens."""
        past_end = min(count, self._past_end)
        self._past_end -= past_end
        if count > past_end and not self._matcher.rollback(count - past_end):
            self._check()

    def forced(self) -> list[int]:
        """Tokens of the text that must follow, if there is any."""
        with self._allowance.spending():
            return self._matcher.compute_ff_tokens()

    def _check(self) -> None:
        if self._matcher.is_error():
            from .check_process import brief_error  # needs llguidance, which is optional

            raise GrammarError(brief_error(self._matcher))


class Trial:
    """Tokens after those of a state, for a while."""

    def __init__(self, state: GrammarState):
        self._state = state
        self.added = 0

    def allowed(self, held_back: Collection[int] = ()) -> bytes:
        """As `GrammarState.allowed`."""
        return self._state.allowed(held_back)

    def accept(self, tokens: Sequence[int]) -> None:
        """Add tokens that may follow."""
        for token in tokens:
            self._state._add([token])
            self.added += 1
