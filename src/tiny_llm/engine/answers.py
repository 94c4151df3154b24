"""The answers that are being made, from their admission to their last event."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from ..errors import ArgumentError, EngineFailed, GrammarError, NumericError, StepFailed
from ..generation.loaded import LoadedModel
from ..generation.text import end_tokens
from ..sampling.grammar import start_grammar
from ..sampling.rows import Drawn, RowSampler
from ..scheduler import Plan, RequestState, Scheduler
from .answer import Answer, PromptScores
from .drafts import ModelDrafts
from .request import EngineRequest, Event, EventReason, Handle
from .statistics import Recorder

NAME = "Engine.submit"
# For each request that has logits, its answers: several at the end of a prompt with several answers.
Samplers = dict[RequestState, list[tuple[RequestState, RowSampler, int | None]]]
LOG = logging.getLogger(__name__)
# What ends an answer inside a step and keeps its class; every other fault is a `StepFailed`.
KEPT = (GrammarError, NumericError, MemoryError, EngineFailed, StepFailed)


class Admission:
    """Checks requests for one model and a context."""

    def __init__(self, llm: LoadedModel, context: int, lookup: bool, model_drafts: ModelDrafts | None):
        self._llm = llm
        self._context = context
        self._lookup = lookup
        self._model_drafts = model_drafts
        self._end_tokens = end_tokens(llm.tokenizer)

    def admit(
        self, request: EngineRequest, now: float, cancel: Callable[[Handle], None]
    ) -> tuple[RequestState, Answer]:
        """The request for the scheduler, and its first answer, which others fork from."""
        prompt_ids = self._checked_prompt(request)
        max_tokens = self._limit(request, len(prompt_ids))
        state = RequestState(
            request.id,
            prompt_ids,
            max_tokens,
            salt=request.salt,
            wants_prompt_logprobs=request.prompt_logprobs is not None,
            choices=request.n,
            deadline=None if request.deadline is None else now + request.deadline,
        )
        sampling = request.sampling.with_seed()
        assert sampling.seed is not None
        grammar = None if request.grammar is None else start_grammar(self._llm.tokenizer, request.grammar)
        sampler = RowSampler(sampling, sampling.seed, 0, prompt_ids, self._end_tokens, grammar)
        handle = Handle(request.id, len(prompt_ids), request.n, cancel, now)
        answer = Answer(
            request,
            handle,
            0,
            self._llm.tokenizer,
            sampler,
            max_tokens,
            lookup=self._lookup,
            model_drafts=None if self._model_drafts is None else self._model_drafts.fork(),
        )
        return state, answer

    def _checked_prompt(self, request: EngineRequest) -> tuple[int, ...]:
        vocabulary = self._llm.model.vocab_size
        prompt_ids = tuple(request.prompt_ids)
        if not prompt_ids:
            raise ArgumentError(NAME, "prompt_ids", "no tokens", "at least one")
        # MLX checks no index: an unknown id would read past the table of tokens.
        if not all(isinstance(token, int) and 0 <= token < vocabulary for token in prompt_ids):
            raise ArgumentError(NAME, "prompt_ids", "an unknown token id", f"ids from 0 to {vocabulary - 1}")
        if len(prompt_ids) >= self._context:
            expected = f"fewer than the context of {self._context}"
            raise ArgumentError(NAME, "prompt_ids", f"{len(prompt_ids)} tokens", expected)
        request.sampling.check_vocabulary(NAME, vocabulary)
        return prompt_ids

    def _limit(self, request: EngineRequest, prompt_tokens: int) -> int:
        """The maximum number of tokens of an answer."""
        room, wanted = self._context - prompt_tokens, request.sampling.max_tokens
        if wanted is not None and wanted > room:
            raise ArgumentError(
                NAME,
                "max_tokens",
                f"{wanted} after a prompt of {prompt_tokens} tokens",
                f"at most {room}, as the context has {self._context}",
            )
        return room if wanted is None else wanted


class Answers:
    """All answers that have not ended. For the thread of the engine.

    No fault of one answer leaves a method: it ends that answer.
    """

    def __init__(self, scheduler: Scheduler, recorder: Recorder):
        self._scheduler = scheduler
        self._recorder = recorder
        self._by_state: dict[RequestState, Answer] = {}
        self._taken: dict[RequestState, Sequence[Drawn]] = {}  # tokens that wait for their event

    def __bool__(self) -> bool:
        return bool(self._by_state)

    def add(self, state: RequestState, answer: Answer) -> None:
        """Queue a request; the scheduler may refuse it."""
        self._scheduler.add(state)
        self._by_state[state] = answer

    def note_start(self, state: RequestState, now: float) -> None:
        """A request runs, for the first time or again."""
        answer = self._by_state[state]
        if answer.started_at is None:
            answer.started_at = now
            answer.handle.cached_tokens = state.cached_tokens
            self._recorder.prompt_tokens += len(state.prompt_ids)
            self._report(state, state.computed)

    def samplers(self, plan: Plan) -> Samplers:
        """The answers that sample from the logits of each row. Here a prompt splits into its answers."""
        samplers: Samplers = {}
        for row in plan.rows:
            answer = self._by_state.get(row.state)
            if not row.logits or answer is None:  # cancelled meanwhile
                continue
            try:
                forks = [answer.fork(choice) for choice in range(1, row.state.choices)]
            except Exception as error:
                self._fail(row.state, error)
                continue
            states = self._scheduler.fork(row.state)
            self._by_state |= zip(states[1:], forks, strict=True)
            samplers[row.state] = [
                (state, each.sampler, each.request.logprobs)
                for state, each in zip(states, [answer, *forks], strict=True)
            ]
        return samplers

    def may_draft(self, plan: Plan) -> bool:
        """Whether the step after this one may have drafts, which only its tokens tell."""
        found = (self._by_state.get(row.state) for row in plan.rows)
        return any(answer.may_draft for answer in found if answer is not None)

    def drafting(self, plan: Plan) -> dict[RequestState, RowSampler]:
        """The samplers of the rows whose drafts are placeholders."""
        found = {}
        for row in plan.rows:
            answer = self._by_state.get(row.state)
            if answer is not None and row.drafts and answer.wants_model_drafts:
                found[row.state] = answer.sampler
        return found

    def prompt_scores(self, plan: Plan) -> dict[RequestState, PromptScores]:
        """Where the log probabilities of prompts are noted, for the rows whose requests want them."""
        found = {row.state: self._by_state.get(row.state) for row in plan.rows}
        return {
            state: answer.prompt_scores
            for state, answer in found.items()
            if answer is not None and answer.prompt_scores is not None
        }

    def take(self, plan: Plan, drawn: dict[RequestState, list[Drawn]], now: float) -> None:
        """Give the answers their tokens: what the plan of the next step needs. `publish` does the rest."""
        tokens = {}
        for state, results in drawn.items():
            if results[-1].error is not None:
                self.end(state, "error", results[-1].error)
            elif state in self._by_state:
                tokens[state] = self._by_state[state].kept(results)
        self._scheduler.commit(
            plan, {state: [each.token_id for each in kept] for state, kept in tokens.items()}
        )
        self._recorder.add_step(plan)
        for row in plan.rows:
            if row.is_prefill:
                self._report(row.state, row.stop)
        drafted = {row.state: len(row.drafts) for row in plan.rows}
        for state, kept in tokens.items():
            if state not in self._by_state:  # its report has failed
                continue
            try:
                self._advance(state, kept, drafted.get(state, 0), now)
            except Exception as error:
                self._fail(state, error)

    def publish(self) -> None:
        """Bring the readers the tokens that were taken since the last call."""
        for state in list(self._taken):
            self._publish(state)

    def end(self, state: RequestState, reason: EventReason, error: Exception | None = None) -> None:
        """End an answer without further tokens; those of a prompt that has not split end together."""
        self._publish(state)
        answer = self._by_state.get(state)
        if answer is None:
            return
        if error is not None and not isinstance(error, KEPT):
            error = StepFailed(error)  # a refused argument would be a mistake of the caller
        unsplit = range(1, state.choices)
        self._scheduler.finish(state, reason)
        event = answer.end(reason, error)
        self._remove(state)
        answer.handle.put(event)
        for choice in unsplit:
            answer.handle.put(Event(choice, finish_reason=reason, error=error))

    def end_all(self, reason: EventReason, error: Exception | None = None, *, waiting: bool = True) -> None:
        """End all answers, or only those that run."""
        kept = [] if waiting else self._scheduler.waiting
        for state in [each for each in self._by_state if each not in kept]:
            self.end(state, reason, error)

    def cancel(self, handle: Handle) -> None:
        """End all answers of a request."""
        for state, answer in list(self._by_state.items()):
            if answer.handle is handle:
                self.end(state, "cancelled")

    def _report(self, state: RequestState, computed: int) -> None:
        answer = self._by_state.get(state)
        try:
            if answer is not None:
                answer.report(computed)
        except Exception as error:  # of the caller's function
            self._fail(state, error)

    def _advance(self, state: RequestState, kept: Sequence[Drawn], drafted: int, now: float) -> None:
        answer = self._by_state[state]
        answer.learn(drafted, len(kept) - 1)
        reason = answer.take(kept, now)
        self._taken[state] = kept
        if reason is None:
            state.drafts = answer.propose(state.token_ids)
        else:
            self._scheduler.finish(state, reason)  # its place is free in the next step
        # Its text may end it, too; and nobody waits for a first token until the next step is described.
        if answer.request.sampling.stop or state.num_output == len(kept):
            self._publish(state)

    def _publish(self, state: RequestState) -> None:
        kept = self._taken.pop(state, None)
        if kept is None:
            return
        answer = self._by_state[state]
        try:
            event = answer.event(kept)
            self._recorder.generation_tokens += len(event.token_ids)
            if event.finish_reason is not None:
                self._scheduler.finish(state, event.finish_reason)
                self._remove(state)
            answer.handle.put(event)
        except Exception as error:
            self._fail(state, error)

    def _fail(self, state: RequestState, error: Exception) -> None:
        LOG.error("an answer failed", exc_info=error)
        self.end(state, "error", error)

    def _remove(self, state: RequestState) -> None:
        answer = self._by_state.pop(state)
        timings = answer.handle.timings[answer.choice] = answer.timings(time.monotonic())
        self._recorder.add_end(timings)
