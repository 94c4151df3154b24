"""Sources of tokens: a model, a prompt and a choice become a stream of ids that does not end by itself."""

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
    """The choice of the next token from the logits [B, V]: processors first, then the sampler.

    A call describes a choice; `read` waits for it, in the same order. `scores` notes each choice, by the
    logits that the model gave.
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
        self._unread: deque[mx.array] = deque()  # the score of each choice

    @property
    def is_greedy(self) -> bool:
        """Whether it takes the most probable token and does nothing else, so that rows can share a choice."""
        return self._sampler is None and not self._processors and self._scores is None

    @property
    def described(self) -> list[tuple[mx.array, ...]]:
        """What it has described beside the ids."""
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
        """Wait for the oldest choice, `ids` [1]; NumericError if the model has lost itself in NaN."""
        refuse_nan([self._unread.popleft().item()])
        return token_id(ids)


class Sequenced:
    """One sequence in a model with its caches: how far it has read, and the way back.

    To be used with `closing`: the pages of a cache must go back to their pool on any way out.
    """

    def __init__(self, model: CachedModel):
        self.model = model
        self.cache: list[Any] = model.create_kv_cache()
        self.offset = 0

    def read(self, ids: mx.array) -> mx.array:
        """Let the model read the next `ids` [L]; return their logits [L, V]."""
        logits = self.model(ids[None], self.offset, self.cache)[0]
        self.offset += ids.size
        return logits

    def read_on(self, ids: mx.array) -> mx.array:
        """Let the model read the next `ids` [L]; return the logits [1, V] behind the last."""
        logits = next_logits(self.model, ids[None], self.offset, self.cache)
        self.offset += ids.size
        return logits

    def prefill(self, prompt: list[int], step: int) -> mx.array:
        """Read the whole prompt, at most `step` tokens at once; return the logits [1, V] behind the last."""
        ids = mx.array(prompt)
        last = (len(prompt) - 1) // step * step
        for start in range(0, last, step):
            self.read_on(ids[start : start + step])  # logits that nobody looks at are never computed
            evaluate(self.cache)
        return self.read_on(ids[last:])

    def starts_ahead(self) -> bool:
        """Whether a step may be started while the one before is being computed."""
        may = getattr(self.model, "starts_ahead", None)
        return may is not None and bool(may(self.cache))

    def rewind(self, n: int) -> None:
        """Forget the newest `n` tokens."""
        if n:
            for layer in self.cache:
                layer.rewind(n)
            self.offset -= n

    def close(self) -> None:
        """Give back what the caches hold of a shared storage."""
        for layer in self.cache:
            layer.release()


def token_id(token: mx.array) -> int:
    """Wait for the id in an array of one."""
    number: Any = token.item()
    return int(number)


def scores_of_chosen(logits: mx.array, ids: mx.array) -> mx.array:
    """The logits [B, 1] of the chosen `ids` [B] among [B, V]; an argmax chooses NaN where there is one."""
    return mx.take_along_axis(logits, ids[:, None], axis=-1)


def refuse_nan(scores: Any) -> None:
    """NumericError if the score of a chosen token is NaN."""
    if any(map(math.isnan, scores)):
        raise NumericError()


def next_logits(model: Any, inputs: mx.array, *where: Any) -> mx.array:
    """The logits [B, V] behind the last token of each row; no others are computed if the model can do so."""
    if hasattr(model, "next_logits"):
        logits: mx.array = model.next_logits(inputs, *where)
        return logits
    return model(inputs, *where)[:, -1]  # type: ignore[no-any-return]


def evaluate(cache: list[LayerCache]) -> None:
    """Compute the keys and values now, so that the memory for the activations of a chunk is free again."""
    mx.eval([layer.storage for layer in cache])


def full_context_tokens(
    model: FullContextModel, prompt: list[int], choose: Chooser, limit: int
) -> Iterator[int]:
    """At most `limit` tokens of a model without a cache: each step reads everything again."""
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
    """At most `limit` tokens behind `prompt`, which itself follows what the sequence has read.

    Where the model starts ahead, the step behind a token is under way before the token is handed out, and
    does not wait for Python; if the answer ends there, it was in vain. Elsewhere the token comes first: on a
    CPU, MLX starts about fifty operations in the background, then waits, and the token with it.
    """
    token = choose(sequence.prefill(prompt, prefill_step))
    yield choose.read(token)
    if limit == 1:
        return
    token = choose(sequence.read_on(token))
    ahead = sequence.starts_ahead()
    for left in range(limit - 2, -1, -1):
        mx.async_eval(token, choose.described)  # type: ignore[no-untyped-call]
        # The next step is described while this one is computed.
        following = choose(sequence.read_on(token)) if left else token
        try:
            if ahead:
                mx.async_eval(following, choose.described)  # type: ignore[no-untyped-call]
        except Exception:
            yield choose.read(token)  # which is there all the same
            raise
        yield choose.read(token)
        token = following
