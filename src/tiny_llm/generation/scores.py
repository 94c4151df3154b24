"""The log probabilities of the tokens of an answer: computed with them, read when each is handed out."""

from collections import deque
from typing import Any

import mlx.core as mx

from ..checks.types import check_size
from ..sampling.select import log_total, top_k
from .result import TokenLogprobs


class Scores:
    """Notes each choice of a token, with the `count` most probable tokens at its place."""

    def __init__(self, count: int):
        self._count = count
        self._unread: deque[tuple[mx.array, ...]] = deque()

    def note(self, logits: mx.array, ids: mx.array) -> None:
        """Describe the scores of the choice `ids` [1] by `logits` [1, V]; to read them computes them."""
        total = log_total(logits)
        chosen = mx.take_along_axis(logits, ids[:, None], axis=-1).astype(mx.float32) - total
        noted: tuple[mx.array, ...] = (ids, chosen)
        if self._count:
            best, best_ids = top_k(logits, min(self._count, logits.shape[-1]))
            noted += (best_ids, best.astype(mx.float32) - total)
        self._unread.append(noted)

    @property
    def unread(self) -> list[tuple[mx.array, ...]]:
        """All that was described and not read."""
        return list(self._unread)

    def read(self) -> TokenLogprobs:
        """The scores of the oldest choice that is unread."""
        values: list[Any] = [mx.flatten(array).tolist() for array in self._unread.popleft()]
        (token,), (logprob,), *best = values
        return TokenLogprobs(token, logprob, tuple(zip(*best, strict=True)))


def scores_of(function: str, logprobs: int | None) -> Scores | None:
    """What notes the scores of an answer, if they are asked for."""
    if logprobs is None:
        return None
    check_size(function, "logprobs", logprobs, least=0)
    return Scores(logprobs)
