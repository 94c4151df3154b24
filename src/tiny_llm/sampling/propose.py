"""Drafts of a small model for the rows of a batch, drawn by the parameters of each row."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from .draw import probabilities
from .grammar import apply_masks
from .row_sampler import PROPOSE, RowSampler
from .select import argmax, categorical_at


class Draft(NamedTuple):
    """A token, and the distribution [V] it was drawn from; None for the best token of a greedy row."""

    token_id: int
    probs: mx.array | None


def propose(logits: mx.array, rows: Sequence[RowSampler], drafts: Sequence[Sequence[int]]) -> list[Draft]:
    """The next draft of each row after its `drafts`, from `logits` [R, V] of a model that drafts.

    Penalties, grammars, temperatures and filters are those of the row, so that a draft is seldom one that the
    row cannot take. Draws are independent of those that verify.
    """
    tokens: list[mx.array] = []
    probs: list[mx.array | None] = []
    if all(row.is_plain for row in rows):
        tokens, probs = [argmax(logits)], [None] * len(rows)
    else:
        for number, (row, before) in enumerate(zip(rows, drafts, strict=True)):
            token, drawn_from = _draw(_scores(logits[number : number + 1], row, before), row, len(before))
            tokens.append(token)
            probs.append(drawn_from)
    ids: Any = mx.concatenate(tokens).tolist()
    last = logits.shape[-1] - 1  # logits that are NaN may give any number
    return [Draft(min(max(token, 0), last), each) for token, each in zip(ids, probs, strict=True)]


def _draw(scores: mx.array, row: RowSampler, place: int) -> tuple[mx.array, mx.array | None]:
    """A token [1] from scores [1, V], and the distribution [V] it was drawn from."""
    if row.sampling.temp == 0:
        return argmax(scores), None
    probs = probabilities(scores, row.sampling)
    uniform = mx.array([row.uniform(place, PROPOSE)], mx.float32)
    return categorical_at(mx.log(probs), uniform), probs[0]


def _scores(logits: mx.array, row: RowSampler, drafts: Sequence[int]) -> mx.array:
    """The logits [1, V] of a row after its penalties, biases and grammar."""
    if not row.changes_logits:
        return logits
    scores = row.process(logits, drafts).astype(mx.float32)
    try:
        mask = row.mask_after(drafts)
    except Exception:  # also a fault of llguidance; it is reported when the drafts are verified
        return scores
    return scores if mask is None else apply_masks(scores, [mask])
