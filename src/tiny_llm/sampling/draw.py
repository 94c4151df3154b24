"""The draw of a token: filters, temperature, and explicit random keys. Pure: equal arguments, equal token."""

import itertools
import math
from collections.abc import Iterator

import mlx.core as mx

from .params import Sampling

# The sum of float32 probabilities may miss a mass that it reaches on paper.
ROUNDING = 1e-6
# Sorting a vocabulary of 150 000 takes ten times as long as finding so many of its best tokens.
CANDIDATES = 4096
# Below this, a gap between two float32 scores is beyond every draw; a division by less could overflow to NaN.
COLDEST = 1e-30


def draw(logits: mx.array, sampling: Sampling, key: mx.array | None = None) -> mx.array:
    """Choose one token id [...] for each row of `logits` [..., V], which may be shifted by any constant.

    Without a `key` the draw advances MLX's global random state.
    """
    if sampling.temp == 0:
        return mx.argmax(logits, axis=-1)
    ids, scores = _shortlist(logits, sampling)
    choice = mx.random.categorical(scores, key=key)
    return choice if ids is None else mx.take_along_axis(ids, choice[..., None], axis=-1).squeeze(-1)


def probabilities(logits: mx.array, sampling: Sampling) -> mx.array:
    """The float32 probabilities [..., V] by which `draw` chooses at a temperature above 0."""
    ids, scores = _shortlist(logits, sampling)
    weights = mx.softmax(scores, axis=-1)
    return weights if ids is None else mx.put_along_axis(mx.zeros(logits.shape), ids, weights, axis=-1)


def random_keys(seed: int | None) -> Iterator[mx.array | None]:
    """One key for each draw that follows from `seed`, or None for MLX's global state."""
    if seed is None:
        return itertools.repeat(None)
    return (random_key(seed, index) for index in itertools.count())


def random_key(seed: int, *counters: int) -> mx.array:
    """The key of one draw, a function of the seed and of the draw's place: a sequence, a token, a row."""
    key = mx.random.key(seed % 2**64)
    for counter in counters:
        # Hashing before and between keeps neighbours apart: no (seed, n + 1) is another (seed + 1, n).
        mixed = mx.random.split(key)[0]
        key = mx.bitwise_xor(mixed, mx.array([counter >> 32, counter % 2**32], mx.uint32))
    return key


def _shortlist(logits: mx.array, sampling: Sampling) -> tuple[mx.array | None, mx.array]:
    """The K tokens that the filters may keep: ids [..., K] (None: all V in order), and scores [..., K].

    The scores are float32 logits at the wanted temperature, at most 0, and -inf for what was filtered out.
    """
    ids, scores = None, logits.astype(mx.float32)
    total = mx.logsumexp(scores, axis=-1, keepdims=True)
    if sampling.top_k and sampling.top_k < logits.shape[-1]:
        # Everything behind this works on k candidates and not on a vocabulary of 150 000.
        ids = mx.argpartition(-scores, sampling.top_k - 1, axis=-1)[..., : sampling.top_k]
        scores = mx.take_along_axis(scores, ids, axis=-1)
    if sampling.top_p is not None and 0 < sampling.top_p < 1:
        order, scores = _keep_mass(scores, total, sampling.top_p)
        ids = order if ids is None else mx.take_along_axis(ids, order, axis=-1)
    best = scores.max(axis=-1, keepdims=True)
    if sampling.min_p:
        scores = mx.where(scores < best + math.log(sampling.min_p), -mx.inf, scores)
    return ids, (scores - best) / max(sampling.temp, COLDEST)


def _keep_mass(scores: mx.array, total: mx.array, mass: float) -> tuple[mx.array, mx.array]:
    """The shortest prefix of the falling scores whose probabilities add up to `mass`: indices and scores.

    What stands behind the prefix is -inf, or left out altogether.
    """
    if scores.shape[-1] > CANDIDATES:
        best = mx.argpartition(-scores, CANDIDATES - 1, axis=-1)[..., :CANDIDATES]
        best = mx.sort(best, axis=-1)  # so that of equals the first comes first, as among all
        candidates = mx.take_along_axis(scores, best, axis=-1)
        order, falling, kept = _falling_prefix(candidates, total, mass)
        if not mx.any(kept[..., -1]).item():  # else the prefix may go on behind the candidates
            return mx.take_along_axis(best, order, axis=-1), mx.where(kept, falling, -mx.inf)
    order, falling, kept = _falling_prefix(scores, total, mass)
    return order, mx.where(kept, falling, -mx.inf)


def _falling_prefix(scores: mx.array, total: mx.array, mass: float) -> tuple[mx.array, mx.array, mx.array]:
    """Indices and scores in falling order, and which of them the prefix takes."""
    order = mx.argsort(-scores, axis=-1)
    falling = mx.take_along_axis(scores, order, axis=-1)
    before = mx.cumsum(mx.exp(falling - total), axis=-1, inclusive=False)
    first = mx.arange(falling.shape[-1]) == 0
    return order, falling, mx.logical_or(before < mass - ROUNDING, first)
