"""Sources of tokens: a model, a prompt and a choice become a stream of ids that does not end by itself."""

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import mlx.core as mx

from ..sampling.penalty import LogitsProcessor
from .protocols import CachedModel, FullContextModel

SHORT_PROMPT = 32  # tokens whose logits cost no more than another step


class Chooser:
    """The choice of the next token from the logits [B, V]: processors first, then the sampler."""

    def __init__(
        self,
        prompt: list[int],
        sampler: Callable[[mx.array], mx.array] | None = None,
        processors: Sequence[LogitsProcessor] = (),
    ):
        self._tokens = mx.array(prompt)
        self._sampler = sampler
        self._processors = processors

    def __call__(self, logits: mx.array) -> mx.array:
        """Return the ids [B], not yet evaluated."""
        for process in self._processors:
            logits = process(self._tokens, logits)
        if self._sampler is None:
            ids = mx.argmax(logits, axis=-1)
        else:
            scores = logits.astype(mx.float32)
            ids = self._sampler(scores - mx.logsumexp(scores, axis=-1, keepdims=True))
        if self._processors:
            self._tokens = mx.concatenate([self._tokens, ids])
        return ids


class Sequenced:
    """One sequence in a model with its caches: how far it has read, and the way back.

    A context manager, because the pages of a cache must go back to their pool on any way out.
    """

    def __init__(self, model: CachedModel):
        self._model = model
        self.cache: list[Any] = model.create_kv_cache()
        self.offset = 0

    def read(self, ids: mx.array) -> mx.array:
        """Let the model read the next `ids` [L]; return their logits [L, V]."""
        logits = self._model(ids[None], self.offset, self.cache)[0]
        self.offset += ids.size
        return logits

    def prefill(self, prompt: list[int], step: int) -> mx.array:
        """Read the whole prompt, at most `step` tokens at once; return the logits [1, V] behind the last."""
        # Only the last logits count, and those that nobody looks at are never computed. So the last token of
        # a long prompt has a step of its own: scoring a large vocabulary is much of a small model's work.
        first = 0 if len(prompt) <= min(step, SHORT_PROMPT) else len(prompt) - 1
        for start in range(0, first, step):
            self.read(mx.array(prompt[start : min(start + step, first)]))
            evaluate(self.cache)
        return self.read(mx.array(prompt[first:]))[-1:]

    def rewind(self, n: int) -> None:
        """Forget the newest `n` tokens."""
        if n:
            for layer in self.cache:
                layer.rewind(n)
            self.offset -= n

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for layer in self.cache:
            layer.release()


def token_id(token: mx.array) -> int:
    """Wait for the id in an array of one."""
    number: Any = token.item()
    return int(number)


def evaluate(cache: list[Any]) -> None:
    """Compute the keys and values now, so that the memory for the activations of a chunk is free again."""
    mx.eval([layer.key_values for layer in cache])


def full_context_tokens(
    model: FullContextModel, prompt: list[int], choose: Chooser, limit: int
) -> Iterator[int]:
    """At most `limit` tokens of a model without a cache: each step reads everything again."""
    tokens = mx.array(prompt)
    for _ in range(limit):
        token = choose(model(tokens[None])[:, -1])
        yield token_id(token)
        tokens = mx.concatenate([tokens, token])


def cached_tokens(
    model: CachedModel, prompt: list[int], choose: Chooser, limit: int, *, prefill_step: int
) -> Iterator[int]:
    """At most `limit` tokens of a model with a cache: the prompt in chunks, then one token a step."""
    with Sequenced(model) as sequence:
        token = choose(sequence.prefill(prompt, prefill_step))
        mx.async_eval(token)  # type: ignore[no-untyped-call]
        for _ in range(limit - 1):
            following = choose(sequence.read(token))
            # Computed while the caller is busy with the token before.
            mx.async_eval(following)  # type: ignore[no-untyped-call]
            yield token_id(token)
            token = following
        yield token_id(token)
