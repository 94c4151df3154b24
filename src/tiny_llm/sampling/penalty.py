"""A logits processor against repetition: tokens that are there already become less probable."""

import math
from collections.abc import Callable

import mlx.core as mx

# (tokens so far [T], logits [B, V]) -> logits [B, V], before they are normalised and sampled.
LogitsProcessor = Callable[[mx.array, mx.array], mx.array]


def make_repetition_penalty(penalty: float) -> LogitsProcessor:
    """Divide the positive logits of all tokens of prompt and answer by `penalty`, and multiply the negative.

    1 changes nothing, more discourages repetition, less invites it.
    """
    if not (penalty > 0 and math.isfinite(penalty)):
        raise ValueError(f"make_repetition_penalty: penalty: got {penalty}, expected a finite number above 0")

    def penalise(tokens: mx.array, logits: mx.array) -> mx.array:
        seen = mx.broadcast_to(tokens, (*logits.shape[:-1], tokens.size))
        scores = mx.take_along_axis(logits, seen, axis=-1)
        # A token that occurs twice is written twice, with the same value: it is penalised once.
        scores = mx.where(scores > 0, scores / penalty, scores * penalty)
        return mx.put_along_axis(logits, seen, scores, axis=-1)

    return penalise
