"""FlashAttention in MLX operations, to be read before the kernels: online softmax in two loop orders.

Both cut the scores into tiles of some query rows times some keys, and hold one tile at a time. V2 finishes
a tile of queries before it starts the next; V1 passes a tile of keys by all queries before it loads the
next, and keeps the state of all rows in memory. `flash_attention` runs V2 in native kernels.
"""

from collections.abc import Callable
from typing import NamedTuple

import mlx.core as mx

from ..checks.types import check_function
from ..ops.arguments import Window
from .score_tiles import ScoreTiles


class RowState(NamedTuple):
    """Online softmax of some query rows over the keys they have met so far, in float32."""

    m: mx.array  # [..., rows, 1]: the largest score
    l: mx.array  # [..., rows, 1]: the sum of exp(score - m)  # noqa: E741
    acc: mx.array  # [..., rows, E]: the sum of exp(score - m) * value, which is the output times l


class Visit(NamedTuple):
    """A tile that was computed: its number among query tiles and key tiles, and the state after it."""

    query_tile: int
    key_tile: int
    state: RowState
    alpha: mx.array  # [..., rows, 1]: what the sums before this tile were multiplied by


OnVisit = Callable[[Visit], None]


def _ignore(_: Visit) -> None:
    """The default of `on_visit`."""


def flash_attention_v2(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | mx.array | None = None,
    mask: mx.array | None = None,
    *,
    causal: bool = False,
    window: Window = None,
    tile: tuple[int, int] = (64, 64),
    on_visit: OnVisit = _ignore,
) -> tuple[mx.array, mx.array]:
    """Attention with the loop over queries outside -> output [..., L, E] and log-sum-exp [..., L].

    query [..., L, E], key and value [..., S, E], whose leading axes broadcast to those of query, so that
    a GQA group is an axis. Scale, mask array, causal and window are those of `flash_attention`; a row that
    sees no key gives zeros and -inf. tile: rows and keys of a tile. on_visit is called with each `Visit`.
    """
    check_function("flash_attention_v2", "on_visit", on_visit)
    tiles = ScoreTiles.of_call("flash_attention_v2", query, key, value, scale, mask, causal, window, tile)
    finished = []
    for i, rows in enumerate(tiles.query_tiles):
        state = no_keys(tiles.query[..., rows, :])
        for j, keys in enumerate(tiles.key_tiles):
            if tiles.sees(rows, keys):
                state, alpha = add_tile(state, tiles.scores(rows, keys), tiles.value[..., keys, :])
                on_visit(Visit(i, j, state, alpha))
        finished.append(divide(state))
    return tiles.join(finished)


def flash_attention_v1(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | mx.array | None = None,
    mask: mx.array | None = None,
    *,
    causal: bool = False,
    window: Window = None,
    tile: tuple[int, int] = (64, 64),
    on_visit: OnVisit = _ignore,
) -> tuple[mx.array, mx.array]:
    """Attention with the loop over keys outside; arguments and results as in `flash_attention_v2`.

    It has no mx.vmap, because mx.depends has none.
    """
    check_function("flash_attention_v1", "on_visit", on_visit)
    tiles = ScoreTiles.of_call("flash_attention_v1", query, key, value, scale, mask, causal, window, tile)
    states = [no_keys(tiles.query[..., rows, :]) for rows in tiles.query_tiles]
    for j, keys in enumerate(tiles.key_tiles):
        for i, rows in enumerate(tiles.query_tiles):
            if tiles.sees(rows, keys):
                states[i], alpha = add_tile(states[i], tiles.scores(rows, keys), tiles.value[..., keys, :])
                on_visit(Visit(i, j, states[i], alpha))
        states = _all_before_next(states)
    return tiles.join([divide(state) for state in states])


def no_keys(query: mx.array) -> RowState:
    """The state of query rows [..., rows, E] before their first key."""
    row = mx.zeros((*query.shape[:-1], 1))
    return RowState(m=row - mx.inf, l=row, acc=mx.zeros(query.shape))


def add_tile(state: RowState, scores: mx.array, value: mx.array) -> tuple[RowState, mx.array]:
    """The state with a tile of keys added, and alpha; scores [..., rows, keys] are -inf for hidden keys."""
    # The output does not depend on m, which only keeps exp in range: no gradient goes through it.
    m = mx.stop_gradient(mx.maximum(state.m, scores.max(axis=-1, keepdims=True)))
    subtrahend = mx.where(mx.isneginf(m), 0, m)  # no visible key so far, and -inf - -inf would be NaN
    alpha = mx.exp(state.m - subtrahend)  # 0 at the first visible key, 1 where the maximum stays
    p = mx.exp(scores - subtrahend)
    sums = alpha * state.l + p.sum(axis=-1, keepdims=True), alpha * state.acc + p @ value
    return RowState(m, *sums), alpha


def divide(state: RowState) -> tuple[mx.array, mx.array]:
    """Output and log-sum-exp: the only division. A row without a visible key has 0 and -inf."""
    empty = state.l == 0
    total = mx.where(empty, 1, state.l)
    out = mx.where(empty, 0, state.acc / total)
    lse = mx.where(empty, -mx.inf, state.m + mx.log(total))
    return out, lse[..., 0]


def _all_before_next(states: list[RowState]) -> list[RowState]:
    """The same states, each of which depends on all: MLX is lazy, and would choose an order of its own."""
    everything = [x for state in states for x in state]
    ordered = iter(mx.depends(everything, everything)) if everything else iter(())
    return [RowState(*triple) for triple in zip(ordered, ordered, ordered, strict=True)]
