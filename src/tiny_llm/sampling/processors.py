"""The logits processors of a `Sampling`: penalties, biases, and end tokens that come too early."""

from collections.abc import Collection
from typing import Any

import mlx.core as mx

from .params import Sampling
from .penalty import LogitsProcessor, make_count_penalty, make_repetition_penalty


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
