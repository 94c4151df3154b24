"""Drawing a token: filters, temperature, and explicit random keys. Equal arguments give an equal token."""

import itertools
import math
from collections.abc import Iterator

import mlx.core as mx

from .params import Sampling
from .select import argmax, categorical, categorical_at, logsumexp, top_k

# A float32 sum of probabilities may stay this far below the exact sum.
CUMSUM_ERROR = 1e-6
# top_p is searched among the 256 most probable tokens, then among 4096, and then in the whole vocabulary:
# sorting 150 000 tokens takes a hundred times as long as finding the few that usually have most of the
# mass.
TOP_P_CANDIDATES = (256, 4096)
# At lower temperatures every draw takes the best token anyway, and the division could overflow to NaN.
MIN_TEMPERATURE = 1e-30


def draw(logits: mx.array, sampling: Sampling, key: mx.array | None = None) -> mx.array:
    """One token id [...] for each row of `logits` [..., V]; a constant added to the logits changes nothing.

    Without a `key` the draw advances MLX's global random state.
    """
    if sampling.temp == 0:
        return argmax(logits)
    ids, scores = _filtered(logits, sampling)
    choice = categorical(scores, key)
    return choice if ids is None else mx.take_along_axis(ids, choice[..., None], axis=-1).squeeze(-1)


def draw_at(logits: mx.array, sampling: Sampling, uniform: mx.array) -> mx.array:
    """Like `draw` at a temperature above 0, by numbers `uniform` [...] in [0, 1), one for each row."""
    ids, scores = _filtered(logits, sampling)
    choice = categorical_at(scores, uniform)
    return choice if ids is None else mx.take_along_axis(ids, choice[..., None], axis=-1).squeeze(-1)


def probabilities(logits: mx.array, sampling: Sampling) -> mx.array:
    """The float32 probabilities [..., V] with which `draw` chooses at a temperature above 0."""
    ids, scores = _filtered(logits, sampling)
    weights = mx.softmax(scores, axis=-1)
    return weights if ids is None else mx.put_along_axis(mx.zeros(logits.shape), ids, weights, axis=-1)


def random_keys(seed: int | None) -> Iterator[mx.array | None]:
    """A key for each draw, derived from `seed`; None each time if there is no seed (MLX's global state)."""
    if seed is None:
        return itertools.repeat(None)
    return (random_key(seed, index) for index in itertools.count())


def random_key(seed: int, *counters: int) -> mx.array:
    """The key of one draw, a function of the seed and of counters, such as sequence, token and row."""
    key = mx.random.key(seed % 2**64)
    for counter in counters:
        # Hashing before each counter keeps (seed, n + 1) and (seed + 1, n) apart.
        mixed = mx.random.split(key)[0]
        key = mx.bitwise_xor(mixed, mx.array([counter >> 32, counter % 2**32], mx.uint32))
    return key


def _filtered(logits: mx.array, sampling: Sampling) -> tuple[mx.array | None, mx.array]:
    """The candidates after the filters: ids [..., K] (None: all V in order), and scores [..., K].

    The scores are float32 logits divided by the temperature, at most 0, and -inf for filtered tokens.
    """
    ids, scores = None, logits
    if sampling.top_k and sampling.top_k < logits.shape[-1]:
        # From here on there are k candidates instead of a vocabulary of 150 000.
        scores, ids = top_k(logits, sampling.top_k)
    if sampling.top_p is not None and 0 < sampling.top_p < 1:
        total = logsumexp(logits)
        if ids is None:
            ids, scores = _top_p(logits, total, sampling.top_p)
        else:
            scores = scores.astype(mx.float32)
            scores = mx.where(_nucleus_mask(scores, total, sampling.top_p), scores, -mx.inf)
    scores = scores.astype(mx.float32)
    best = scores.max(axis=-1, keepdims=True)
    if sampling.min_p:
        scores = mx.where(scores < best + math.log(sampling.min_p), -mx.inf, scores)
    return ids, (scores - best) / max(sampling.temp, MIN_TEMPERATURE)


def _top_p(logits: mx.array, total: mx.array, mass: float) -> tuple[mx.array, mx.array]:
    """The most probable tokens that together have the probability `mass`: ids, and float32 scores.

    They are in descending order. Further tokens are left out, or have the score -inf.
    """
    vocabulary = logits.shape[-1]
    for count in (*(count for count in TOP_P_CANDIDATES if count < vocabulary), vocabulary):
        descending, ids = top_k(logits, count)
        descending = descending.astype(mx.float32)
        kept = _nucleus_mask(descending, total, mass)
        if count == vocabulary or not mx.any(kept[..., -1]).item():  # else more tokens may be needed
            break
    return ids, mx.where(kept, descending, -mx.inf)


def _nucleus_mask(descending: mx.array, total: mx.array, mass: float) -> mx.array:
    """True for the shortest prefix of `descending` scores whose probabilities add up to `mass`."""
    before = mx.cumsum(mx.exp(descending - total), axis=-1, inclusive=False)
    first = mx.arange(descending.shape[-1]) == 0
    return mx.logical_or(before < mass - CUMSUM_ERROR, first)
