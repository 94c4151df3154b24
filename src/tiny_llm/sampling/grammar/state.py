"""Where one answer is in its grammar: which tokens may follow, steps forward and back, and their time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from ...errors import GrammarError

if TYPE_CHECKING:
    import llguidance

MOST = 1.0  # seconds that may be saved; a request begins with so many
PER_TOKEN = 0.005  # seconds that each token of an answer adds; most masks take less than a tenth of it
TOO_SLOW = "takes too much time for each token"


class TimeBudget:
    """Of one request, for all its answers: every request of a batch waits for a mask.

    Beyond it, each of its answers ends with a GrammarError, and `give_up` is called, which may refuse the
    grammar to later requests. Those that follow it already have budgets of their own.
    """

    def __init__(self, give_up: Callable[[str], None]):
        self._give_up = give_up
        self._left = MOST

    def of_another(self) -> TimeBudget:
        """Of another request with the same grammar."""
        return TimeBudget(self._give_up)

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


def apply_masks(logits: mx.array, masks: Sequence[bytes | None]) -> mx.array:
    """`logits` [R, V] as float32, with -inf for each token whose bit in the mask of its row is 0 or missing.

    A mask has the lowest bit of each byte first; None allows every token.
    """
    vocabulary = logits.shape[-1]
    size = -(-vocabulary // 8)
    rows = [b"\xff" * size if mask is None else mask[:size].ljust(size, b"\0") for mask in masks]
    joined: Any = memoryview(b"".join(rows))
    # A sum: for 150 000 tokens on a CPU, mx.where takes 0.6 ms, a sum 0.03 ms and this look-up 0.2 ms.
    added = mx.take(_added_by_byte(), mx.array(joined), axis=0).reshape(len(rows), -1)
    return logits + added[:, :vocabulary]


@cache
def _added_by_byte() -> mx.array:
    """What each byte of a mask adds to the logits of its 8 tokens, [256, 8]: 0 or -inf."""
    bits = mx.arange(256)[:, None] // mx.array([2**bit for bit in range(8)]) % 2
    added = mx.where(bits == 1, 0.0, -mx.inf)
    mx.eval(added)
    return added


class GrammarState:
    """The state after the tokens of an answer so far; where nothing more may follow, end tokens may.

    GrammarError if the grammar exceeds llguidance's limits for a step or its `budget` of time, or a token
    is not allowed.

    size: bytes of the compiled grammar, which a state at the beginning shares with its copies.
    """

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        end_tokens: frozenset[int],
        budget: TimeBudget,
        past_end: int = 0,
        size: int = 0,
    ):
        self._matcher = matcher
        self._end_tokens = end_tokens
        self._budget = budget
        # End tokens where nothing else could follow: the matcher does not count these.
        self._past_end = past_end
        self.size = size

    def copy(self) -> GrammarState:
        """An independent state after the same tokens, of another answer to the same request."""
        return GrammarState(self._matcher.deep_copy(), self._end_tokens, self._budget, self._past_end)

    def start(self) -> GrammarState:
        """A state at the beginning, of another request. For a state at the beginning."""
        return GrammarState(self._matcher.deep_copy(), self._end_tokens, self._budget.of_another())

    @property
    def is_complete(self) -> bool:
        """Whether the answer may end here."""
        return self._matcher.is_accepting()

    def allowed(self, held_back: Collection[int] = ()) -> bytes:
        """A bit for each token, the lowest of each byte first: whether it may follow.

        Tokens of `held_back` may not, unless no other may.
        """
        with self._budget.spending():
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
        self._budget.earn(len(tokens))
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
        with self._budget.spending():
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
        with self._budget.spending():
            return self._matcher.validate_tokens(list(tokens))

    def rollback(self, count: int) -> None:
        """Remove the newest tokens."""
        past_end = min(count, self._past_end)
        self._past_end -= past_end
        if count > past_end and not self._matcher.rollback(count - past_end):
            self._check()

    def forced(self) -> list[int]:
        """Tokens of the text that must follow, if there is any."""
        with self._budget.spending():
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
