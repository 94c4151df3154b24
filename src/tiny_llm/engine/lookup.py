"""Drafts from the text itself: what followed the newest tokens where they stood before.

Summaries, edits and quotations repeat their prompt. Several tokens of one request cost less than as many
steps, because a step reads all weights anyway.
"""

from collections.abc import Sequence
from itertools import cycle, islice

NGRAM = 3  # tokens that must be the same
# How many tokens are drafted: few at first, more after each step in which all were right. With the decoded
# token they fill the rows that kernels multiply together: on a CPU without AMX, two rows of qwen2-0.5b take
# 1.2 times as long as one, four 2.4, eight 3.5 and nine 5.3.
LENGTHS = (1, 3, 7)
MOST_DRAFTS = LENGTHS[-1]
MOST_INDEXED = 2048  # tokens in one step: a long prompt must not delay the others
# After some wrong drafts in a row, a request waits before it tries again.
PATIENCE = 2
FIRST_STEPS_OFF = 4  # the next time twice as many
MOST_STEPS_OFF = 64


class PromptLookup:
    """The drafts of one answer; it tries fewer and less often where they are wrong."""

    def __init__(self, ngram: int = NGRAM, most_drafts: int = MOST_DRAFTS):
        self._ngram = ngram
        self._most_drafts = most_drafts
        self._length = 0  # of LENGTHS
        self._last_end: dict[tuple[int, ...], int] = {}  # where an n-gram ended the last time
        self._indexed = 0  # tokens whose n-grams are in it
        self._misses = 0
        self._off = 0  # steps to wait
        self._next_off = FIRST_STEPS_OFF

    @property
    def pauses(self) -> bool:
        """Whether the next call of `propose` gives no drafts, whatever the text."""
        return self._off > 0

    def propose(self, token_ids: Sequence[int]) -> Sequence[int]:
        """Up to `most_drafts` tokens that may follow; none where nothing is known."""
        size, total = self._ngram, len(token_ids)
        stop = min(total, self._indexed + MOST_INDEXED)
        for end in range(max(self._indexed, size), stop):  # all but the newest n-gram
            self._last_end[tuple(token_ids[end - size : end])] = end
        self._indexed = stop
        if self._off > 0:
            self._off -= 1
            return ()
        if total < size:
            return ()
        found = self._last_end.get(tuple(token_ids[total - size :]))
        if found is None:
            return ()
        count = min(LENGTHS[self._length], self._most_drafts)
        # A text that ends with a repetition goes on with it.
        return list(islice(cycle(token_ids[found : found + count]), count))

    def learn(self, drafted: int, accepted: int) -> None:
        """After a step that verified drafts: how many were right."""
        if drafted == 0:
            return
        if accepted == drafted:
            self._length = min(self._length + 1, len(LENGTHS) - 1)
        elif 2 * accepted < drafted:
            self._length = 0
        if accepted > 0:
            self._misses, self._next_off = 0, FIRST_STEPS_OFF
            return
        self._misses += 1
        if self._misses >= PATIENCE:
            self._misses, self._off = 0, self._next_off
            self._next_off = min(2 * self._next_off, MOST_STEPS_OFF)
