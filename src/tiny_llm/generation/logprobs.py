"""The log probabilities of the tokens of an answer: evaluated with the tokens, returned later."""

from collections import deque
from typing import Any

import mlx.core as mx

from ..checks.types import check_size
from ..sampling.select import logsumexp, top_k
from .result import TokenLogprobs


class LogprobQueue:
    """The log probability of each sampled token, and the `count` most probable tokens at its position."""

    def __init__(self, count: int):
        self._count = count
        self._entries: deque[tuple[mx.array, ...]] = deque()

    def add(self, logits: mx.array, ids: mx.array) -> None:
        """Add the token `ids` [1], sampled from `logits` [1, V]; nothing is evaluated."""
        total = logsumexp(logits)
        selected = mx.take_along_axis(logits, ids[:, None], axis=-1).astype(mx.float32) - total
        entry: tuple[mx.array, ...] = (ids, selected)
        if self._count:
            best, best_ids = top_k(logits, min(self._count, logits.shape[-1]))
            entry += (best_ids, best.astype(mx.float32) - total)
        self._entries.append(entry)

    @property
    def arrays(self) -> list[tuple[mx.array, ...]]:
        """The arrays of all entries."""
        return list(self._entries)

    def pop(self) -> TokenLogprobs:
        """Evaluate and remove the oldest entry."""
        values: list[Any] = [mx.flatten(array).tolist() for array in self._entries.popleft()]
        (token,), (logprob,), *best = values
        return TokenLogprobs(token, logprob, tuple(zip(*best, strict=True)))


def make_logprob_queue(function: str, logprobs: int | None) -> LogprobQueue | None:
    """A queue for `logprobs` most probable tokens; None if `logprobs` is None."""
    if logprobs is None:
        return None
    check_size(function, "logprobs", logprobs, minimum=0)
    return LogprobQueue(logprobs)
