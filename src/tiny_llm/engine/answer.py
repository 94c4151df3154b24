"""One answer that is being made: tokens in, events out; and the log probabilities of its prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from ..generation.result import TokenLogprobs
from ..generation.text import TextStream, new_detokenizer
from ..sampling.rows import Drawn, RowSampler
from ..sampling.select import log_probabilities
from ..sampling.stop import StopStrings
from ..scheduler import Plan, RequestState
from .drafts import MOST_DRAFTS, ModelDrafts, PromptLookup
from .request import EngineRequest, Event, EventReason, Handle, Timings


class Answer:
    """The sampler, the text and the end of one answer of a request."""

    def __init__(
        self,
        request: EngineRequest,
        handle: Handle,
        choice: int,
        tokenizer: Any,
        sampler: RowSampler,
        max_tokens: int,
        *,
        lookup: bool,
        model_drafts: ModelDrafts | None,
    ):
        self.request, self.handle, self.choice = request, handle, choice
        self.sampler = sampler
        self._tokenizer = tokenizer
        self._text = TextStream(new_detokenizer(tokenizer))
        self._stops = StopStrings(request.sampling.stop)
        self._end_tokens = sampler.ending_tokens
        self._lookup = PromptLookup() if lookup else None
        self._model_drafts = model_drafts
        self._max_tokens = max_tokens
        self._generated = 0
        self.started_at: float | None = None
        self._first_token_at: float | None = None
        self._last_token_at = 0.0
        most = request.prompt_logprobs
        self.prompt_scores = None if most is None else PromptScores(tuple(request.prompt_ids), most)
        self.finish_reason: EventReason | None = None
        self._proposer: PromptLookup | ModelDrafts | None = None  # who proposed; None: the grammar, or nobody

    def fork(self, choice: int) -> Answer:
        """Another answer to the same prompt, before the first token."""
        other = Answer(
            self.request,
            self.handle,
            choice,
            self._tokenizer,
            self.sampler.fork(choice),
            self._max_tokens,
            lookup=self._lookup is not None,
            model_drafts=None if self._model_drafts is None else self._model_drafts.fork(),
        )
        other.started_at, other.prompt_scores = self.started_at, self.prompt_scores
        return other

    def report(self, computed: int) -> None:
        """So many tokens are computed; those of an answer that is computed again do not count."""
        if self.request.progress is not None and self._first_token_at is None:
            self.request.progress(computed, len(self.request.prompt_ids))

    @property
    def may_draft(self) -> bool:
        """Whether the next call of `propose` may return any."""
        looks_up = self._lookup is not None and not self._lookup.pauses
        return looks_up or self.sampler.grammar is not None or self._model_drafts is not None

    def propose(self, token_ids: Sequence[int]) -> Sequence[int]:
        """Drafts that may follow prompt and answer so far, or placeholders for those of a model."""
        self._proposer = None
        drafts: Sequence[int] = self.sampler.forced()[:MOST_DRAFTS]
        if not drafts and self._lookup is not None:
            self._proposer, drafts = self._lookup, self._lookup.propose(token_ids)
        if not drafts and self._model_drafts is not None:
            self._proposer, drafts = self._model_drafts, self._model_drafts.propose()
        return drafts

    @property
    def wants_model_drafts(self) -> bool:
        """Whether `propose` has returned placeholders."""
        return self._proposer is not None and self._proposer is self._model_drafts

    def learn(self, drafted: int, accepted: int) -> None:
        """How many drafts of the last step were right."""
        if self._proposer is not None:
            self._proposer.learn(drafted, accepted)

    def kept(self, drawn: Sequence[Drawn]) -> Sequence[Drawn]:
        """The tokens up to the first end token."""
        for number, each in enumerate(drawn, start=1):
            if each.token_id in self._end_tokens:
                return drawn[:number]
        return drawn

    def take(self, drawn: Sequence[Drawn], now: float) -> EventReason | None:
        """Go on with the next tokens, which `kept` has returned; why none follow, whatever their text.

        Their event is made later, beside the next step.
        """
        if self._first_token_at is None:
            self._first_token_at = now
        self._last_token_at = now
        self.sampler.accept([each.token_id for each in drawn])
        if drawn[-1].token_id in self._end_tokens:
            return "stop"
        return "length" if len(self.sampler.tokens) == self._max_tokens else None

    def event(self, drawn: Sequence[Drawn]) -> Event:
        """The event of the tokens that `take` got, each once and in order."""
        scores = None if self._generated else self.prompt_scores
        prompt_logprobs = None if scores is None else scores.entries
        text = ""
        for number, each in enumerate(drawn, start=1):
            self._generated += 1
            if each.token_id in self._end_tokens:
                self.finish_reason = "stop"
                break
            piece = self._text.add(each.token_id)
            # The text of the first `min_tokens` tokens contains no stop string that counts.
            is_early = self._generated <= self.request.sampling.min_tokens
            text += piece if is_early else self._stops.add(piece)
            if self._stops.found:
                self.finish_reason = "stop"
                drawn = drawn[:number]
                break
        if self.finish_reason is None and self._generated == self._max_tokens:
            self.finish_reason = "length"
        if self.finish_reason is not None:
            text += self._stops.add(self._text.finish()) + self._stops.finish()
            if self._stops.found:
                self.finish_reason = "stop"
        logprobs = None
        if self.request.logprobs is not None:
            logprobs = tuple(TokenLogprobs(each.token_id, each.logprob or 0.0, each.top) for each in drawn)
        return Event(
            self.choice,
            text,
            tuple(each.token_id for each in drawn),
            logprobs,
            self.finish_reason,
            stop_string=self._stops.which,
            prompt_logprobs=prompt_logprobs,
            at=self._last_token_at,
        )

    def end(self, reason: EventReason, error: Exception | None = None) -> Event:
        """The last event of an answer that ends without further tokens."""
        self.finish_reason = reason
        text = self._stops.add(self._text.finish()) + self._stops.finish()
        return Event(self.choice, text, (), None, reason, error)

    def timings(self, now: float) -> Timings:
        """Of an answer that has ended."""
        assert self.finish_reason is not None
        begin, started = self.handle.submitted_at, self.started_at
        first = self._first_token_at
        if self.finish_reason in ("stop", "length"):
            now = self._last_token_at
        return Timings(
            self.finish_reason,
            self._generated,
            (now if started is None else started) - begin,
            None if first is None else first - begin,
            now - begin,
        )


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
        arrays = log_probabilities(logits, mx.array(list(targets)), self._most)
        mx.eval(arrays)
        values: list[Any] = [array.tolist() for array in arrays]
        rows = zip(targets, *values, strict=True)
        for place, (token, (logprob,), top_ids, top) in enumerate(rows, start=start + 1):
            self._entries[place] = TokenLogprobs(token, logprob, tuple(zip(top_ids, top, strict=True)))


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
