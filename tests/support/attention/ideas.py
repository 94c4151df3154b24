"""Each idea of FlashAttention in one small case: a kernel without the idea fails the case of that name."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

Case = tuple[mx.array, mx.array, mx.array, mx.array | str | None]  # query, key, value, mask

S = 600  # keys: several tiles of any kernel, the last of them incomplete
L = 80  # queries: too many for kernels that cut the keys of a row, and merge what they find in each part


def _scored(scores: mx.array, E: int = 8, queries: int = L) -> tuple[mx.array, mx.array]:
    """Query [1, 1, L, E] and key [1, 1, S, E] with these scaled scores in each row."""
    query, key = mx.zeros((1, 1, queries, E)), mx.zeros((1, 1, scores.size, E))
    query[..., 0] = E**0.5
    key[..., 0] = scores
    return query, key


def _numbered(keys: int, heads: int = 1, E: int = 8) -> mx.array:
    """The value of key j of head h is j + 1000 h."""
    number = mx.arange(keys) + 1000 * mx.arange(heads)[:, None]
    return mx.broadcast_to(number[None, ..., None].astype(mx.float32) / 100, (1, heads, keys, E))


def averages_all_tiles() -> Case:
    """Scores of 0 have equal weights: the result is the mean of all values, the last tile's included."""
    return *_scored(mx.zeros(S)), _numbered(S), None


def multiplies_scores_by_the_scale() -> Case:
    """E ** -0.5, before the exponential."""
    query, key = _scored(mx.array([1.0, 0.0]), E=16)
    return query, key, _numbered(2, E=16), None


def subtracts_the_maximum() -> Case:
    """exp(1000) is infinite, but equal scores have equal weights."""
    return *_scored(mx.full((S,), 1000.0)), _numbered(S), None


def rescales_when_the_maximum_grows() -> Case:
    """Each tile has larger scores than those before: the sums so far shrink by exp(m_old - m_new)."""
    return *_scored(mx.arange(S) / 4), _numbered(S), None


def keeps_an_earlier_maximum() -> Case:
    """Each tile has smaller scores than those before: the first ones have most of the weight."""
    return *_scored(-mx.arange(S) / 4), _numbered(S), None


def aligns_the_last_query_with_the_last_key() -> Case:
    """Three queries are the last of 70 tokens: they see 68, 69 and all 70 of them, themselves included."""
    return *_scored(mx.zeros(70), queries=3), _numbered(70), "causal"


def reads_the_shared_head() -> Case:
    """Query heads 0, 1, 2 read key/value head 0, and heads 3, 4, 5 head 1: h // (H_q / H), not h % H."""
    return mx.zeros((1, 6, 3, 8)), mx.zeros((1, 2, 70, 8)), _numbered(70, heads=2), None


def skips_tiles_without_a_key() -> Case:
    """The first row sees the last 30 keys only, and the second none: -inf - -inf and 0 / 0 are NaN."""
    hidden = mx.zeros((L, S))
    hidden[0, : S - 30] = -mx.inf
    hidden[1] = -mx.inf
    return *_scored(mx.arange(S) / 100), _numbered(S), hidden


IDEAS: tuple[Callable[[], Case], ...] = (
    averages_all_tiles,
    multiplies_scores_by_the_scale,
    subtracts_the_maximum,
    rescales_when_the_maximum_grows,
    keeps_an_earlier_maximum,
    aligns_the_last_query_with_the_last_key,
    reads_the_shared_head,
    skips_tiles_without_a_key,
)
