"""Streams of token ids from a model, a prompt and a sampler; end tokens do not end them."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import mlx.core as mx

from ..errors import NumericError
from ..sampling.penalty import LogitsProcessor
from ..sampling.select import argmax, log_total
from .protocols import CachedModel, FullContextModel, LayerCache
from .scores import Scores


class Chooser:
    """Chooses the next token from the logits [B, V]: logits processors first, then the sampler.

    A call returns an unevaluated choice; `read` waits for its value, in the order of the calls. `scores`
    records the log probabilities of each choice, from the logits before the processors.
    """

    def __init__(
        self,
        prompt: list[int],
        sampler: Callable[[mx.array], mx.array] | None = None,
        processors: Sequence[LogitsProcessor] = (),
        scores: Scores | None = None,
    ):
        self._tokens = mx.array(prompt)
        self._sampler = sampler
        self._processors = processors
        self._scores = scores
        self._unread: deque[mx.array] = deque()  # the logit of each choice

    @property
    def is_greedy(self) -> bool:
        """Whether it is a plain argmax, so that the rows of a batch can share one."""
        return self._sampler is None and not self._processors and self._scores is None

    @property
    def unevaluated(self) -> list[tuple[mx.array, ...]]:
        """The unevaluated arrays beside the ids."""
        return [*zip(self._unread), *([] if self._scores is None else self._scores.unread)]

    def __call__(self, logits: mx.array) -> mx.array:
        """Return the ids [B], not yet evaluated."""
        model_logits = logits
        for process in self._processors:
            logits = process(self._tokens, logits)
        if self._sampler is None:
            ids = argmax(logits)
        else:
            logits = logits.astype(mx.float32) - log_total(logits)  # all are NaN if one is
            ids = self._sampler(logits)
        self._unread.append(scores_of_chosen(logits, ids))
        if self._processors:
            self._tokens = mx.concatenate([self._tokens, ids])
        if self._scores is not None:
            self._scores.note(model_logits, ids)
        return ids

    def read(self, ids: mx.array) -> int:
        """Wait for the oldest choice, `ids` [1]; NumericError if its logit is NaN."""
        refuse_nan([self._unread.popleft().item()])
        return token_id(ids)


class Sequenced:
    """One sequence of a model: its caches, and `offset`, the number of tokens in them.

    Use it with `closing`, so that the pages of the caches are returned on every exit.
    """

    def __init__(self, model: CachedModel):
        self.model = model
        self.cache: list[Any] = model.create_kv_cache()
        self.offset = 0

    def read(self, ids: mx.array) -> mx.array:
        """Run the model on the next `ids` [L]; return their logits [L, V]."""
        logits = self.model(ids[None], self.offset, self.cache)[0]
        self.offset += ids.size
        return logits

    def read_on(self, ids: mx.array) -> mx.array:
        """Run the model on the next `ids` [L]; return the logits [1, V] of the last."""
        logits = next_logits(self.model, ids[None], self.offset, self.cache)
        self.offset += ids.size
        return logits

    def prefill(self, prompt: list[int], step: int) -> mx.array:
        """Run the model on `prompt` in chunks of `step` tokens; return the last logits [1, V]."""
        ids = mx.array(prompt)
        last = (len(prompt) - 1) // step * step
        for start in range(0, last, step):
            self.read_on(ids[start : start + step])  # its logits are never evaluated
            evaluate(self.cache)
        return self.read_on(ids[last:])

    def starts_ahead(self) -> bool:
        """Whether a step may be started while the previous one is being computed."""
        may = getattr(self.model, "starts_ahead", None)
        return may is not None and bool(may(self.cache))

    def rewind(self, n: int) -> None:
        """Remove the newest `n` tokens."""
        if n:
            for layer in self.cache:
                layer.rewind(n)
            self.offset -= n

    def close(self) -> None:
        """Return what the caches hold of shared storage."""
        for layer in self.cache:
            layer.release()


def token_id(token: mx.array) -> int:
    """Wait for the id in an array of one."""
    number: Any = token.item()
    return int(number)


def scores_of_chosen(logits: mx.array, ids: mx.array) -> mx.array:
    """The logits [B, 1] of the chosen `ids` [B]; argmax chooses a NaN if there is one in the row."""
    return mx.take_along_axis(logits, ids[:, None], axis=-1)


def refuse_nan(scores: Any) -> None:
    """NumericError if a logit of a chosen token is NaN."""
    if any(map(math.isnan, scores)):
        raise NumericError()


def next_logits(model: Any, inputs: mx.array, *where: Any) -> mx.array:
    """The logits [B, V] of the last token of each row; with `model.next_logits` no others are computed."""
    if hasattr(model, "next_logits"):
        logits: mx.array = model.next_logits(inputs, *where)
        return logits
    return model(inputs, *where)[:, -1]  # type: ignore[no-any-return]


def evaluate(cache: list[LayerCache]) -> None:
    """Evaluate keys and values, so that the activations of a chunk are freed."""
    mx.eval([layer.storage for layer in cache])


def full_context_tokens(
    model: FullContextModel, prompt: list[int], choose: Chooser, limit: int
) -> Iterator[int]:
    """At most `limit` tokens of a model without a cache: each step runs on all tokens."""
    tokens = mx.array(prompt)
    for _ in range(limit):
        token = choose(next_logits(model, tokens[None]))
        yield choose.read(token)
        tokens = mx.concatenate([tokens, token])


def cached_tokens(
    model: CachedModel, prompt: list[int], choose: Chooser, limit: int, *, prefill_step: int
) -> Iterator[int]:
    """At most `limit` tokens of a model with a cache: the prompt in chunks, then one token a step."""
    with closing(Sequenced(model)) as sequence:
        yield from sequence_tokens(sequence, prompt, choose, limit, prefill_step=prefill_step)


def sequence_tokens(
    sequence: Sequenced, prompt: list[int], choose: Chooser, limit: int, *, prefill_step: int
) -> Iterator[int]:
    """At most `limit` tokens that follow `prompt`, which itself follows the tokens of the sequence.

    If the model starts ahead, the next step is started before a token is yielded, so it does not wait for the
    caller; at the end of an answer one step is wasted. Otherwise the token is yielded first, because on a CPU
    MLX blocks the caller once about fifty operations are in flight.
    """
    token = choose(sequence.prefill(prompt, prefill_step))
    yield choose.read(token)
    if limit == 1:
        return
    token = choose(sequence.read_on(token))
    ahead = sequence.starts_ahead()
    for left in range(limit - 2, -1, -1):
        mx.async_eval(token, choose.unevaluated)  # type: ignore[no-untyped-call]
        # The graph of the next step is built while this one is computed.
        following = choose(sequence.read_on(token)) if left else token
        try:
            if ahead:
                mx.async_eval(following, choose.unevaluated)  # type: ignore[no-untyped-call]
        except Exception:
            yield choose.read(token)  # it is valid all the same
            raise
        yield choose.read(token)
        token = following
