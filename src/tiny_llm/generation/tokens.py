"""Streams of token ids from a model, a prompt and a sampler; end tokens do not end them."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import mlx.core as mx

from ..errors import NumericError
from ..sampler import sampler_of
from ..sampling.params import Sampling
from ..sampling.processors import LogitsProcessor, logits_processors
from ..sampling.row_sampler import seeded_sampler
from ..sampling.select import argmax, logsumexp, selected_logits
from .protocols import CachedModel, FullContextModel
from .sequence import SequenceState, next_logits


class TokenSampler:
    """Samples the next token from logits [B, V]: logits processors first, then the sampler.

    `sample` returns unevaluated ids, `result` waits for them, in the same order.
    """

    def __init__(
        self,
        prompt: list[int],
        sampler: Callable[[mx.array], mx.array] | None = None,
        processors: Sequence[LogitsProcessor] = (),
    ):
        self._tokens = mx.array(prompt)
        self._sampler = sampler
        self._processors = processors
        self._selected: deque[mx.array] = deque()  # the logit of each sampled token

    @classmethod
    def make(
        cls,
        sampling: Sampling,
        prompt: list[int],
        end_tokens: frozenset[int],
        processors: Sequence[LogitsProcessor] = (),
    ) -> "TokenSampler":
        """The sampler of one answer of a model with `end_tokens`; the given `processors` come first."""
        own = logits_processors(sampling, len(prompt), sampling.ending_tokens(end_tokens))
        is_seeded = sampling.seed is not None and sampling.temp != 0
        sampler = seeded_sampler(sampling) if is_seeded else sampler_of(sampling)
        return cls(prompt, sampler, [*processors, *own])

    @property
    def pending_arrays(self) -> list[mx.array]:
        """The arrays to evaluate with the ids."""
        return list(self._selected)

    def sample(self, logits: mx.array) -> mx.array:
        """Return unevaluated ids [B]."""
        for process in self._processors:
            logits = process(self._tokens, logits)
        if self._sampler is None:
            ids = argmax(logits)
        else:
            logits = logits.astype(mx.float32) - logsumexp(logits)  # all are NaN if one is
            ids = self._sampler(logits)
        self._selected.append(selected_logits(logits, ids))
        if self._processors:
            self._tokens = mx.concatenate([self._tokens, ids])
        return ids

    def result(self, ids: mx.array) -> int:
        """Wait for the oldest token, `ids` [1]; NumericError if its logit is NaN."""
        refuse_nan([self._selected.popleft().item()])
        return token_id(ids)


def token_id(token: mx.array) -> int:
    """Wait for the id in an array of one."""
    number: Any = token.item()
    return int(number)


def refuse_nan(logits: Any) -> None:
    """NumericError if one of the logits of sampled tokens is NaN."""
    if any(map(math.isnan, logits)):
        raise NumericError()


def full_context_tokens(
    model: FullContextModel, prompt: list[int], sampler: TokenSampler, limit: int
) -> Iterator[int]:
    """At most `limit` tokens of a model without a cache: each step runs on all tokens."""
    tokens = mx.array(prompt)
    for _ in range(limit):
        token = sampler.sample(next_logits(model, tokens[None]))
        yield sampler.result(token)
        tokens = mx.concatenate([tokens, token])


def cached_tokens(
    model: CachedModel, prompt: list[int], sampler: TokenSampler, limit: int, *, prefill_step: int
) -> Iterator[int]:
    """At most `limit` tokens of a model with a cache: the prompt in chunks, then one token a step."""
    with closing(SequenceState(model)) as sequence:
        yield from sequence_tokens(sequence, prompt, sampler, limit, prefill_step=prefill_step)


def sequence_tokens(
    sequence: SequenceState, prompt: list[int], sampler: TokenSampler, limit: int, *, prefill_step: int
) -> Iterator[int]:
    """At most `limit` tokens that follow `prompt`, which itself follows the tokens of the sequence.

    If the model starts ahead, the next step is started before a token is yielded, so it does not wait for the
    caller; at the end of an answer one step is wasted. Otherwise the token is yielded first, because on a CPU
    MLX blocks the caller once about fifty operations are in flight.
    """
    token = sampler.sample(sequence.prefill(prompt, prefill_step))
    yield sampler.result(token)
    if limit == 1:
        return
    token = sampler.sample(sequence.step(token))
    ahead = sequence.starts_ahead()
    for remaining in range(limit - 2, -1, -1):
        mx.async_eval(token, sampler.pending_arrays)  # type: ignore[no-untyped-call]
        # The graph of the next step is built while this one is computed.
        try:
            following = sampler.sample(sequence.step(token)) if remaining else token
            if ahead:
                mx.async_eval(following, sampler.pending_arrays)  # type: ignore[no-untyped-call]
        except Exception:
            yield sampler.result(token)  # it is valid all the same
            raise
        yield sampler.result(token)
        token = following
