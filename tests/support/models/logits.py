"""Agreement of two models: in their logits, and in the token of the largest logit.

The margin is the best logit minus the second best. The logits of two runs differ by at most the sum of their
tolerances, in either direction: with a margin above twice that sum, both runs choose the same token.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from ..tolerance import Float64, to_float64

# Largest error of the logits of a model that runs in this type, relative to the largest logit.
TOLERANCE = {mx.float32: 1e-4, mx.bfloat16: 2e-2, mx.float16: 2e-2}


def assert_logits(
    actual: mx.array, expected: mx.array | Float64, tolerance: float = TOLERANCE[mx.float32]
) -> None:
    """Logits differ by at most `tolerance` of the largest, and so does the chosen token's from the best."""
    ours = to_float64(actual)
    theirs = to_float64(expected) if isinstance(expected, mx.array) else expected
    assert ours.shape == theirs.shape
    allowed = tolerance * np.abs(theirs).max()
    assert np.abs(ours - theirs).max() <= allowed  # never true of NaN
    chosen = np.take_along_axis(theirs, ours.argmax(-1)[..., None], axis=-1)[..., 0]
    assert (theirs.max(-1) - chosen <= allowed).all()


def clear_steps(logits: mx.array, dtype: mx.Dtype) -> int:
    """How many steps of logits [T, V], from a float32 run, surely choose the same token in `dtype`."""
    scores = np.sort(to_float64(logits))
    margins = scores[:, -1] - scores[:, -2]
    allowed = 2 * (TOLERANCE[mx.float32] + TOLERANCE[dtype]) * np.abs(scores).max(axis=-1)
    return int(np.cumprod(margins > allowed).sum())
