"""Logits processors: what changes the logits of a row before its token is drawn, such as penalties."""

import math
from collections.abc import Callable, Collection
from typing import Any

import mlx.core as mx

from ..errors import ArgumentError
from .params import Sampling

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


def logits_processors(
    sampling: Sampling, prompt_tokens: int, endings: Collection[int] = ()
) -> list[LogitsProcessor]:
    """The processors of `sampling` in their order, for a prompt of that length.

    `endings` are the tokens that are impossible before `min_tokens`; with a grammar none: its mask does that.
    """
    processors = []
    if sampling.repetition_penalty is not None:
        processors.append(make_repetition_penalty(sampling.repetition_penalty))
    if sampling.presence_penalty or sampling.frequency_penalty:
        processors.append(
            make_count_penalty(sampling.presence_penalty, sampling.frequency_penalty, prompt_tokens)
        )
    if sampling.logit_bias:
        processors.append(make_logit_bias(sampling))
    if sampling.min_tokens and endings:
        processors.append(make_min_tokens(sampling.min_tokens, prompt_tokens, endings))
    return processors


def make_logit_bias(sampling: Sampling) -> LogitsProcessor:
    """Add `sampling.logit_bias`. The result is float32."""
    pairs: Any = sampling.logit_bias
    ids, biases = mx.array([token for token, _ in pairs]), mx.array([bias for _, bias in pairs])
    largest = max(token for token, _ in pairs)

    def add_bias(tokens: mx.array, logits: mx.array) -> mx.array:
        if largest >= logits.shape[-1]:  # of a model whose vocabulary was unknown before
            sampling.check_vocabulary("Sampling", logits.shape[-1])
        return logits.astype(mx.float32).at[..., ids].add(biases)

    return add_bias


def make_min_tokens(count: int, prompt_tokens: int, end_tokens: Collection[int]) -> LogitsProcessor:
    """Make `end_tokens` impossible until `count` tokens follow the first `prompt_tokens`."""

    def hold_open(tokens: mx.array, logits: mx.array) -> mx.array:
        if tokens.size - prompt_tokens >= count:
            return logits
        ids = mx.array([token for token in end_tokens if token < logits.shape[-1]], mx.uint32)
        places = mx.broadcast_to(ids, (*logits.shape[:-1], ids.size))
        return mx.put_along_axis(logits, places, mx.array(-mx.inf, logits.dtype), axis=-1)

    return hold_open
