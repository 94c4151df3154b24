"""The result does not depend on how the running maximum changes from tile to tile."""

import mlx.core as mx
import numpy as np
import pytest

from ...support.attention.check import check
from ...support.cases import DTYPE_IDS, DTYPES, normal

HEADS, S, E = 8, 300, 16
SHAPES_OF_SCORES = {
    "rising slowly": np.linspace(0, 30, S),
    "rising fast": np.linspace(0, 150, S),
    "falling": np.linspace(150, 0, S),
    "one peak": np.where(np.arange(S) == 200, 90.0, 0.0),
    "one peak at the end": np.where(np.arange(S) == S - 1, 90.0, 0.0),
    "steps of a tile": 6.0 * (np.arange(S) // 64),
    "from far below": np.linspace(-500, -400, S),
}


def scores(shape_of_scores, L, dtype):
    """query and key with q.k = about the given score, times 1 or 2 depending on the row."""
    direction = normal(E, seed=2)
    q = direction * (1 + mx.arange(L) % 2)[None, :, None]
    k = direction / direction.square().sum() * mx.array(shape_of_scores, dtype=mx.float32)[:, None]
    return mx.broadcast_to(q, (HEADS, L, E)).astype(dtype), (k + 0.1 * normal(HEADS, S, E)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("shape_of_scores", SHAPES_OF_SCORES.values(), ids=SHAPES_OF_SCORES)
@pytest.mark.parametrize("L", [1, 40, 300])
def test_scores(L, shape_of_scores, dtype):
    q, k = scores(shape_of_scores, L, dtype)
    v = normal(HEADS, S, E, dtype=dtype, seed=1)
    check(q, k, v, scale=0.9)
    check(q, k, v, scale=0.9, causal=True)
    check(q, k, v, scale=0.9, softcap=100.0, sinks=mx.linspace(-50, 50, HEADS))
