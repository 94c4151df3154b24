"""Drafts from the text itself: what followed the newest tokens where they stood before.

Summaries, edits and quotations repeat their prompt. Several tokens of one request cost little more than one,
because a step reads all weights anyway.
"""

from collections.abc import Sequence

NGRAM = 3  # tokens that must be the same
MOST_DRAFTS = 8
MOST_INDEXED = 2048  # tokens in one step: a long prompt must not delay the others
# A wrong draft costs part of a step. After some of them, a request waits before it tries again.
PATIENCE = 4
MOST_STEPS_OFF = 64


class PromptLookup:
    """The drafts of one answer; it tries less often where they are wrong."""

    def __init__(self, ngram: int = NGRAM, most_drafts: int = MOST_DRAFTS):
        self._ngram = ngram
        self._most_drafts = most_drafts
        self._last_end: dict[tuple[int, ...], int] = {}  # where an n-gram ended the last time
        self._indexed = 0  # tokens whose n-grams are in it
        self._misses = 0
        self._off = 0  # steps to wait
        self._next_off = PATIENCE

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
        return () if found is None else token_ids[found : found + self._most_drafts]

    def learn(self, drafted: int, accepted: int) -> None:
        """After a step that verified drafts: how many were right."""
        if drafted == 0:
            return
        if accepted > 0:
            self._misses, self._next_off = 0, PATIENCE
            return
        self._misses += 1
        if self._misses >= PATIENCE:
            self._misses, self._off = 0, self._next_off
            self._next_off = min(2 * self._next_off, MOST_STEPS_OFF)
