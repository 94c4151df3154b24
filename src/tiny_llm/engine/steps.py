"""What a step computes: from the rows of its plan to logits, and to the next tokens of the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from ..generation.loaded import LoadedModel
from ..models.packed import PackedRequest
from ..runtime.device import on_device
from ..sampling.propose import propose
from ..sampling.rows import Drawn, GreedyStep, RowSampler, RowStep, start_rows
from ..sampling.verify import fit_vocabulary
from ..scheduler import Plan, RequestState, Row
from .answer import take_prompt_scores
from .answers import Answers, Samplers
from .dense import DenseRunner
from .ranks import LeadingRunner
from .runner import Runner
from .sizes import PoolSize

# For each request, the distributions [k, V] that its drafts were drawn from; None for those of a greedy one.
DraftProbs = dict[RequestState, mx.array | None]


class PendingTokens(NamedTuple):
    """The tokens of a step that are being computed, and whose they are."""

    states: Sequence[RequestState]
    tokens: GreedyStep | RowStep

    def results(self) -> dict[RequestState, list[Drawn]]:
        """Wait for the next tokens of each answer: accepted drafts, then one more."""
        return dict(zip(self.states, self.tokens.results(), strict=True))

    def ids_of(self, rows: Sequence[Row]) -> mx.array:
        """The tokens of these requests, each of which has one; they may not be computed yet."""
        places = [self.states.index(row.state) for row in rows]
        return self.tokens.ids if len(places) == len(self.states) else self.tokens.ids[mx.array(places)]


def sample(
    logits: mx.array, plan: Plan, samplers: Samplers, draft_probs: Mapping[RequestState, mx.array | None]
) -> PendingTokens | None:
    """Begin to sample the next tokens of each answer; None if there are none in this step.

    A sampler comes with the number of most probable tokens that are wanted; None: no log probabilities.
    `draft_probs` has the distributions that drafts were drawn from, if they were.
    """
    states: list[RequestState] = []
    rows: list[RowSampler] = []
    drafts: list[Sequence[int]] = []
    logprobs: list[int | None] = []
    positions: list[int] = []
    offset = 0
    for row in plan.rows:
        for state, sampler, count in samplers.get(row.state, ()) if row.logits else ():
            states.append(state)
            rows.append(sampler)
            drafts.append(list(row.drafts))
            logprobs.append(count)
            positions += range(offset, offset + row.logits)
        offset += row.logits
    if not states:
        return None
    if len(positions) != offset or positions != list(range(offset)):
        logits = logits[mx.array(positions)]
    probs = [draft_probs.get(state) for state in states]
    return PendingTokens(states, start_rows(logits, rows, drafts, logprobs, probs))


class DraftModel:
    """Computes the rows of each step as the large model does, and drafts where it is asked to.

    It has pages of its own, under the same numbers: a page holds the same tokens in both pools, so sharing,
    copies, preemption and rejected drafts need no second book. Everything here belongs to one thread.
    """

    def __init__(self, model: Any, size: PoolSize, verifier: Any, *, grows: bool = False):
        assert size.draft is not None
        self._runner = Runner(model, size.draft, grows=grows)
        self._vocabulary: int = verifier.vocab_size  # the two may differ in padding

    def forget(self) -> None:
        """Start with new pages."""
        self._runner.forget()

    def fill(self, plan: Plan, samplers: Mapping[RequestState, RowSampler]) -> DraftProbs:
        """Replace the placeholders of these requests by drafts, and compute all rows of the plan."""
        rows = [row for row in plan.rows if row.state in samplers]
        self._runner.prepare(plan)
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


class Steps:
    """Runs the model of an engine, and the model that drafts for it. All arrays belong to one thread.

    The device is taken for one step at a time, so that an engine on another device has its turn.
    """

    def __init__(
        self,
        llm: LoadedModel,
        runner: Runner | DenseRunner | LeadingRunner,
        draft_model: DraftModel | None = None,
    ):
        self._llm = llm
        self.runner = runner
        self._draft_model = draft_model
        self._ahead: tuple[Sequence[Row], mx.array] | None = None  # rows that are being computed, and logits

    def compute(
        self, plan: Plan, answers: Answers, plan_ahead: Callable[[], Plan | None]
    ) -> dict[RequestState, list[Drawn]]:
        """The next tokens of each answer.

        Nothing waits for the tokens of this step but its result: if `plan_ahead` knows the next one, that is
        started before. First the readers get the tokens of the step before, beside the kernels.
        """
        with on_device(self._llm.device):
            draft_probs: DraftProbs = {}
            if self._draft_model is not None:
                answers.publish()  # the readers do not wait for the drafts
                draft_probs = self._draft_model.fill(plan, answers.drafting(plan))
            logits = self._logits(plan, answers)
            answers.publish()
            samplers = answers.samplers(plan)
            logits = take_prompt_scores(logits, plan, answers.prompt_scores(plan))
            pending = sample(logits, plan, samplers, draft_probs)
            if pending is not None and self._may_start_ahead(plan, pending):
                self._start_ahead(pending, plan_ahead())
            if pending is None:
                mx.eval(logits)
                return {}
            return pending.results()

    def _logits(self, plan: Plan, answers: Answers) -> mx.array:
        """The logits of a step, which is started unless it was before."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] is plan.rows:
            return ahead[1]
        logits = self.runner.logits(plan)
        if not self.runner.starts_at_once:
            answers.publish()
        mx.async_eval(logits)  # type: ignore[no-untyped-call]
        return logits

    def _may_start_ahead(self, plan: Plan, pending: PendingTokens) -> bool:
        """Not before first tokens are read: describing a step takes milliseconds where no block is native."""
        at_once = self.runner.starts_at_once and pending.tokens.starts_at_once
        return self._draft_model is None and at_once and not any(row.is_prefill for row in plan.rows)

    def _start_ahead(self, pending: PendingTokens, plan: Plan | None) -> None:
        if plan is not None:
            logits = self.runner.logits(plan, pending.ids_of(plan.rows))
            mx.async_eval(logits)  # type: ignore[no-untyped-call]
            self._ahead = plan.rows, logits

    def rest(self) -> None:
        """Nothing runs: free what only the next step would."""
        self._ahead = None
        self.runner.rest()

    def forget(self) -> None:
        """Start with new pages: after a step that failed, arrays may be unusable."""
        assert not isinstance(self.runner, LeadingRunner)  # several ranks cannot go on: their engine ends
        self._ahead = None
        with on_device(self._llm.device):
            self.runner.forget()
            if self._draft_model is not None:
                self._draft_model.forget()
