"""The log probabilities of the tokens of an answer: evaluated with the tokens, read later."""

from collections import deque
from typing import Any

import mlx.core as mx

from ..checks.types import check_size
from ..sampling.select import log_total, top_k
from .result import TokenLogprobs


class Scores:
    """A queue: the log probability of each chosen token, and the `count` most probable tokens there."""

    def __init__(self, count: int):
        self._count = count
        self._unread: deque[tuple[mx.array, ...]] = deque()

    def note(self, logits: mx.array, ids: mx.array) -> None:
        """Add the choice `ids` [1] from `logits` [1, V], not evaluated yet."""
        total = log_total(logits)
        chosen = mx.take_along_axis(logits, ids[:, None], axis=-1).astype(mx.float32) - total
        noted: tuple[mx.array, ...] = (ids, chosen)
        if self._count:
            best, best_ids = top_k(logits, min(self._count, logits.shape[-1]))
            noted += (best_ids, best.astype(mx.float32) - total)
        self._unread.append(noted)

    @property
    def unread(self) -> list[tuple[mx.array, ...]]:
        """The arrays that were added and not read."""
        return list(self._unread)

    def read(self) -> TokenLogprobs:
        """Evaluate and remove the oldest choice."""
        values: list[Any] = [mx.flatten(array).tolist() for array in self._unread.popleft()]
        (token,), (logprob,), *best = values
        return TokenLogprobs(token, logprob, tuple(zip(*best, strict=True)))


def scores_of(function: str, logprobs: int | None) -> Scores | None:
    """A queue for `logprobs` most probable tokens; None if `logprobs` is None."""
    if logprobs is None:
        return None
    check_size(function, "logprobs", logprobs, least=0)
    return Scores(logprobs)
