"""The rows of a batch, each with parameters of its own: the next token of all, and drafts verified."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from ..errors import ArgumentError, NumericError
from .row_sampler import RowSampler
from .row_step import Drawn, RowStep
from .select import argmax, selected_logits

__all__ = ["Drawn", "GreedyStep", "RowSampler", "RowStep", "start_rows", "verify_rows"]


class GreedyStep:
    """The most probable token of each row: the common case, with few operations."""

    starts_at_once = True

    def __init__(self, logits: mx.array):
        self.ids = argmax(logits)
        self._best = selected_logits(logits, self.ids)
        mx.async_eval(self.ids, self._best)  # type: ignore[no-untyped-call]

    def results(self) -> list[list[Drawn]]:
        """Wait for the token of each row."""
        tokens: Any = self.ids.tolist()
        values: Any = self._best.tolist()
        return [
            [Drawn(token) if value == value else Drawn(-1, error=NumericError())]  # NaN differs from itself
            for token, (value,) in zip(tokens, values, strict=True)
        ]


def start_rows(
    logits: mx.array,
    rows: Sequence[RowSampler],
    drafts: Sequence[Sequence[int]],
    logprobs: Sequence[int | None] | None = None,
    draft_probs: Sequence[mx.array | None] | None = None,
) -> GreedyStep | RowStep:
    """Begin to sample as `verify_rows` does; its `results` waits for the tokens.

    Until then its `ids` are what is drawn at each position, as an array, unless `draft_probs` are given.
    """
    if sum(len(each) + 1 for each in drafts) != logits.shape[0] or len(drafts) != len(rows):
        expected = f"one position for each of {len(rows)} rows and one for each draft"
        raise ArgumentError("verify_rows", "logits", f"{logits.shape[0]} rows", expected)
    if any(not 0 <= draft < logits.shape[-1] for each in drafts for draft in each):
        raise ArgumentError(
            "verify_rows", "drafts", "an id outside of the vocabulary", "ids of the vocabulary"
        )
    wanted = logprobs or [None] * len(rows)
    if not any(drafts) and all(row.is_plain for row in rows) and wanted.count(None) == len(rows):
        return GreedyStep(logits)
    step = RowStep(logits, rows, drafts, wanted)
    probs = draft_probs or [None] * len(rows)
    step.draw([row for row in range(len(rows)) if probs[row] is None or rows[row].sampling.temp == 0])
    step.start()
    for row, given in enumerate(probs):
        if given is not None and rows[row].sampling.temp != 0:
            step.reject(row, given)
    return step


def verify_rows(
    logits: mx.array,
    rows: Sequence[RowSampler],
    drafts: Sequence[Sequence[int]],
    logprobs: Sequence[int | None] | None = None,
    draft_probs: Sequence[mx.array | None] | None = None,
) -> list[list[Drawn]]:
    """The accepted drafts of each row and the token after them, at least one; the rows do not change.

    `logits` [N, V] has the positions of the first row, then those of the second, and so on: k + 1 for k
    drafts. A draft is accepted if it is the token that is drawn at its position, so neither a greedy nor a
    seeded answer depends on its drafts; for drafts that were not drawn, such as n-grams, this is rejection
    sampling. For drafts that were drawn from distributions, `draft_probs` has these, [k, V], and more are
    accepted: each with probability min(1, target / draft). Tokens have the same distribution with any drafts.
    An ending token is the last.

    `logprobs`: for each row how many of the most probable tokens to return, with the log probability of the
    token itself; None for neither. These are of the raw logits in float32. NaN or a grammar at its limit is
    the `error` of that row alone.
    """
    return start_rows(logits, rows, drafts, logprobs, draft_probs).results()
