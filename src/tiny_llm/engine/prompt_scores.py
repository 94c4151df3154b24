"""Log probabilities of the tokens of a prompt, from the steps that process it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from ..generation.result import TokenLogprobs
from ..sampling.select import logsumexp, top_k
from ..scheduler import Plan, RequestState


class PromptScores:
    """Of one prompt, filled chunk by chunk, with the `most` most probable tokens of each position."""

    def __init__(self, prompt_ids: Sequence[int], most: int):
        self._prompt_ids = prompt_ids
        self._most = most
        self._entries: dict[int, TokenLogprobs] = {}  # by position; a chunk may be computed again

    @property
    def entries(self) -> tuple[TokenLogprobs, ...]:
        """Of all tokens but the first, which nothing precedes."""
        return tuple(self._entries[place] for place in range(1, len(self._prompt_ids)))

    def add(self, logits: mx.array, start: int) -> None:
        """`logits` [N, V] are those of the positions from `start` on: each has the next token's."""
        targets = self._prompt_ids[start + 1 : start + 1 + logits.shape[0]]
        logits = logits[: len(targets)]
        total = logsumexp(logits)
        own = mx.take_along_axis(logits, mx.array(list(targets))[:, None], axis=-1).astype(mx.float32) - total
        best, ids = top_k(logits, max(1, self._most))
        arrays = [own, ids, best.astype(mx.float32) - total]
        mx.eval(arrays)
        values: list[Any] = [array.tolist() for array in arrays]
        rows = zip(targets, *values, strict=True)
        for place, (token, (logprob,), top_ids, top) in enumerate(rows, start=start + 1):
            pairs = tuple(zip(top_ids, top, strict=True))[: self._most]
            self._entries[place] = TokenLogprobs(token, logprob, pairs)


def take_prompt_scores(logits: mx.array, plan: Plan, scores: Mapping[RequestState, PromptScores]) -> mx.array:
    """Note what the logits of a step say about prompts; return the logits that are for sampling."""
    if not any(row.scored > row.logits for row in plan.rows):
        return logits
    sampled: list[int] = []
    stop = 0
    for row in plan.rows:
        begin, stop = stop, stop + row.scored
        if row.state in scores and row.scored > row.logits:
            scores[row.state].add(logits[begin:stop], row.start)
        sampled += range(stop - row.logits, stop)
    return logits[mx.array(sampled)] if sampled else logits[:0]
