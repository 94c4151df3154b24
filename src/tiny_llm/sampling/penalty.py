"""Logits processors against repetition: tokens of prompt and answer become less probable."""

import math
from collections.abc import Callable

import mlx.core as mx

from ..errors import ArgumentError

# (tokens so far [T], logits [B, V]) -> logits [B, V], before they are normalised and sampled.
LogitsProcessor = Callable[[mx.array, mx.array], mx.array]


def make_repetition_penalty(penalty: float) -> LogitsProcessor:
    """Divide the positive logits of all tokens of prompt and answer by `penalty`, and multiply the negative.

    1 changes nothing; above 1 repetition becomes less probable, below 1 more probable.
    """
    if not (penalty > 0 and math.isfinite(penalty)):
        raise ArgumentError("make_repetition_penalty", "penalty", penalty, "a finite number above 0")

    def penalise(tokens: mx.array, logits: mx.array) -> mx.array:
        seen = mx.broadcast_to(tokens, (*logits.shape[:-1], tokens.size))
        scores = mx.take_along_axis(logits, seen, axis=-1)
        # A token that occurs twice is written twice with the same value, so it is penalised once.
        scores = mx.where(scores > 0, scores / penalty, scores * penalty)
        return mx.put_along_axis(logits, seen, scores, axis=-1)

    return penalise


def make_count_penalty(presence: float, frequency: float, prompt_tokens: int) -> LogitsProcessor:
    """Subtract `presence` from the logit of each token of the answer, and `frequency` for each occurrence.

    The answer is what follows the first `prompt_tokens` tokens. The result is float32.
    """

    def penalise(tokens: mx.array, logits: mx.array) -> mx.array:
        logits = logits.astype(mx.float32)
        answer = tokens[prompt_tokens:]
        if answer.size == 0:
            return logits
        counts = mx.zeros(logits.shape[-1]).at[answer].add(1.0)
        return logits - (frequency * counts + mx.where(counts > 0, presence, 0.0))

    return penalise
