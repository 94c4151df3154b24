"""A small model that drafts for the answers of a batch."""

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from ..generation.speculative import fit_vocabulary
from ..models.packed import PackedRequest
from ..sampling.propose import propose
from ..sampling.rows import RowSampler
from ..scheduler import Plan, RequestState, Row
from .runner import Runner
from .sizes import PoolSize

# For each request, the distributions [k, V] that its drafts were drawn from; None for those of a greedy one.
DraftProbs = dict[RequestState, mx.array | None]


class DraftModel:
    """Computes the rows of each step as the large model does, and drafts where it is asked to.

    It has pages of its own, under the same numbers: a page holds the same tokens in both pools, so sharing,
    copies, preemption and rejected drafts need no second book. Everything here belongs to one thread.
    """

    def __init__(self, model: Any, size: PoolSize, verifier: Any):
        assert size.draft is not None
        self._runner = Runner(model, size.draft)
        self._vocabulary: int = verifier.vocab_size  # the two may differ in padding

    def forget(self) -> None:
        """Start with new pages."""
        self._runner.forget()

    def fill(self, plan: Plan, samplers: Mapping[RequestState, RowSampler]) -> DraftProbs:
        """Replace the placeholders of these requests by drafts, and compute all rows of the plan."""
        rows = [row for row in plan.rows if row.state in samplers]
        self._runner.copy_pages(plan.copies)
        first = [
            _request(row, row.token_ids[: len(row.token_ids) - len(row.drafts)], row.start, 1)
            if row.state in samplers
            else _request(row, row.token_ids, row.start, 0)
            for row in plan.rows
        ]
        logits = self._runner.run(first)
        probs: dict[RequestState, list[mx.array | None]] = {row.state: [] for row in rows}
        place = 0
        while rows:
            logits = fit_vocabulary(logits, self._vocabulary)
            before = [row.drafts[:place] for row in rows]
            drafts = propose(logits, [samplers[row.state] for row in rows], before)
            for row, draft in zip(rows, drafts, strict=True):
                row.set_draft(place, draft.token_id)
                probs[row.state].append(draft.probs)
            place += 1
            # The last draft needs no logits, but its keys: it may be accepted.
            newest = [
                _request(row, row.drafts[place - 1 : place], row.start + place, int(place < len(row.drafts)))
                for row in rows
            ]
            logits = self._runner.run(newest)
            rows = [row for row in rows if place < len(row.drafts)]
        mx.eval(logits)
        return {state: _stacked(each) for state, each in probs.items()}


def _request(row: Row, token_ids: Sequence[int], start: int, logits: int) -> PackedRequest:
    return PackedRequest(token_ids, start + len(token_ids), row.pages, logits)


def _stacked(probs: Sequence[mx.array | None]) -> mx.array | None:
    given = [each for each in probs if each is not None]
    return mx.stack(given) if given else None
