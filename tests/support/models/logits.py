"""How two models agree: in their scores, and in the token that they choose.

A margin is what the best score leads the second best by. Scores of two runs lie apart by their tolerances,
each of them in either direction, so a margin above twice their sum leaves no choice.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from ..tolerance import Float64, to_float64

# How far the logits of a model run in that type may lie from exact ones, in units of the largest one.
TOLERANCE = {mx.float32: 1e-4, mx.bfloat16: 2e-2, mx.float16: 2e-2}


def assert_logits(
    actual: mx.array, expected: mx.array | Float64, tolerance: float = TOLERANCE[mx.float32]
) -> None:
    """Within `tolerance` of the largest logit, and the token chosen is the best one or as near to it."""
    ours = to_float64(actual)
    theirs = to_float64(expected) if isinstance(expected, mx.array) else expected
    assert ours.shape == theirs.shape
    allowed = tolerance * np.abs(theirs).max()
    assert np.abs(ours - theirs).max() <= allowed  # never true of NaN
    chosen = np.take_along_axis(theirs, ours.argmax(-1)[..., None], axis=-1)[..., 0]
    assert (theirs.max(-1) - chosen <= allowed).all()


def clear_steps(logits: mx.array, dtype: mx.Dtype) -> int:
    """How many steps [T, V] of a run in float32 there are before one in `dtype` may decide otherwise."""
    scores = np.sort(to_float64(logits))
    margins = scores[:, -1] - scores[:, -2]
    allowed = 2 * (TOLERANCE[mx.float32] + TOLERANCE[dtype]) * np.abs(scores).max(axis=-1)
    return int(np.cumprod(margins > allowed).sum())
