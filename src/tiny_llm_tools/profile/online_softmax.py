"""The states of the online softmax: what FlashAttention holds of a row after each tile of keys."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from tiny_llm.checks.arrays import check_floats, check_shape
from tiny_llm.checks.types import check_size
from tiny_llm.errors import ArgumentError


@dataclass(frozen=True, slots=True, eq=False)
class OnlineSoftmax:
    """Rows of scores, read in T tiles of keys. Each array has the states 0 (before the first tile) to T.

    m [..., T + 1]: the largest score so far, -inf at first
    l [..., T + 1]: the sum of exp(score - m) so far
    alpha [..., T + 1]: the factor that rescaled l and the output when the tile came; 0 in state 0, and where
        m was -inf
    output [..., T + 1, E]: O', the sum of exp(score - m) * value so far; None without values
    result [..., E]: O' / l after the last tile, the one division; zeros where no key is visible
    lse [...]: the log-sum-exp of the scores
    """

    m: mx.array
    l: mx.array  # noqa: E741 - the paper's name
    alpha: mx.array
    output: mx.array | None
    result: mx.array | None
    lse: mx.array

    @property
    def tiles(self) -> int:
        """The number T of tiles."""
        return self.m.shape[-1] - 1


def online_softmax(scores: mx.array, block_size: int = 4, value: mx.array | None = None) -> OnlineSoftmax:
    """Every state of rows of scores [..., L, S] or [S], -inf for a hidden key, in tiles of `block_size` keys.

    The values are [..., S, E]. All is computed in the type of the scores.
    """
    name = "online_softmax"
    check_floats(name, scores=scores)
    check_size(name, "block_size", block_size)
    if scores.ndim < 1:
        raise ArgumentError(name, "scores", "a number", "an array [..., S]")
    if value is not None:
        check_floats(name, value=value)
        check_shape(name, "value", value.shape[-2:], (scores.shape[-1], "E"))
    m = mx.full(scores.shape[:-1], -mx.inf, dtype=scores.dtype)
    l = mx.zeros_like(m)  # noqa: E741
    output = None if value is None else mx.zeros((*m.shape, value.shape[-1]), dtype=scores.dtype)
    states = [(m, l, mx.zeros_like(m), output)]
    for start in range(0, scores.shape[-1], block_size):
        tile = scores[..., start : start + block_size]
        largest = mx.maximum(m, tile.max(axis=-1))
        # Subtracting -inf from -inf would give NaN: while no key is visible, 0 is subtracted.
        reference = mx.where(largest == -mx.inf, 0, largest).astype(scores.dtype)
        alpha = mx.exp(m - reference)
        weight = mx.exp(tile - reference[..., None])
        l = alpha * l + weight.sum(axis=-1)  # noqa: E741
        if output is not None and value is not None:
            output = alpha[..., None] * output + weight @ value[..., start : start + block_size, :]
        m = largest
        states.append((m, l, alpha, output))
    empty = l == 0
    divisor = mx.where(empty, 1, l).astype(scores.dtype)
    return OnlineSoftmax(
        m=mx.stack([state[0] for state in states], axis=-1),
        l=mx.stack([state[1] for state in states], axis=-1),
        alpha=mx.stack([state[2] for state in states], axis=-1),
        output=None
        if output is None
        else mx.stack([state[3] for state in states if state[3] is not None], -2),
        result=None if output is None else output / divisor[..., None],
        lse=mx.where(empty, -mx.inf, m + mx.log(divisor)).astype(scores.dtype),
    )
