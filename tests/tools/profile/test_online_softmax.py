"""Every state of the online softmax, against the sums that define it and a worked example."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import ArgumentError
from tiny_llm_tools.profile import online_softmax

# One query, 32 keys in tiles of 8, exact binary fractions; the query is already scaled.
QUERY = [(((3 * c + 1) % 8) - 4) / 8 for c in range(8)]
KEYS = [[(((4 * j + 2 * c + 3 * j * c) % 31) - 15) / 16 for c in range(8)] for j in range(32)]
VALUES = [[(((5 * j + 3 * c) % 13) - 6) / 8 for c in range(8)] for j in range(32)]
SCORES = [sum(a * b for a, b in zip(QUERY, key, strict=True)) for key in KEYS]
# m, l, alpha, O'[0], O'[3] after each tile
STATES = [
    (0.375, 5.651413550821609, 0, -0.117840916, 0.256456315),
    (0.9921875, 6.6261542212474875, 0.5394595359337269, -0.796665792, 0.978827979),
    (0.9921875, 9.764654720342117, 1, -0.607354039, 1.383042103),
    (1.3203125, 9.911438204289409, 0.7202729799554398, -0.890709109, 1.964400934),
]
OUTPUT = [
    -0.089866787285, -0.117183331914, 0.032360477755, 0.198195346962,
    -0.03305219936, -0.121350601002, 0.006746301223, 0.131328372023,
]  # fmt: skip


def test_the_worked_example() -> None:
    found = online_softmax(mx.array(SCORES), 8, mx.array(VALUES))
    assert found.output is not None
    assert found.tiles == 4
    for state, (m, l, alpha, first, fourth) in enumerate(STATES, start=1):  # noqa: E741
        assert found.m[state].item() == m
        assert found.l[state].item() == pytest.approx(l, rel=1e-6)
        assert found.alpha[state].item() == pytest.approx(alpha, rel=1e-6)
        assert found.output[state, 0].item() == pytest.approx(first, abs=2e-6)
        assert found.output[state, 3].item() == pytest.approx(fourth, abs=2e-6)
    np.testing.assert_allclose(np.array(found.result), OUTPUT, atol=1e-6)
    assert found.lse.item() == pytest.approx(3.6140019643801082, rel=1e-6)
    assert (found.m[0].item(), found.l[0].item()) == (-math.inf, 0)


@pytest.mark.parametrize("block", [1, 2, 3, 7, 16, 100])
def test_each_state_is_the_sum_over_the_keys_so_far(block: int) -> None:
    scores = np.array(mx.random.normal((3, 4, 16)) * 4, np.float64)
    scores[0, 0, :6] = -np.inf  # whole tiles without a visible key come first
    scores[1, 2, 5:] = -np.inf
    value = mx.random.normal((3, 16, 2))
    found = online_softmax(mx.array(scores.astype(np.float32)), block, value)
    assert found.output is not None
    assert found.tiles == -(-16 // block)
    for state in range(1, found.tiles + 1):
        seen = scores[..., : state * block]
        m = seen.max(-1)
        safe = np.where(np.isneginf(m), 0, m)
        weight = np.exp(seen - safe[..., None])
        np.testing.assert_allclose(np.array(found.m[..., state]), m, rtol=1e-6)
        np.testing.assert_allclose(np.array(found.l[..., state]), weight.sum(-1), rtol=1e-5, atol=1e-6)
        part = weight @ np.array(value, np.float64)[:, : state * block]
        np.testing.assert_allclose(np.array(found.output[:, :, state]), part, rtol=1e-4, atol=1e-5)
    assert np.isfinite(np.array(found.alpha)).all()


def test_a_row_without_visible_keys_gives_zeros_and_nan_stays_nan() -> None:
    hidden = online_softmax(mx.full((1, 4), -mx.inf), 2, mx.ones((4, 3)))
    assert hidden.result is not None
    assert hidden.result.tolist() == [[0, 0, 0]]
    assert hidden.lse.tolist() == [-math.inf]
    broken = online_softmax(mx.array([[1.0, math.nan, 2.0, 3.0]]), 2, mx.ones((4, 3)))
    assert broken.result is not None
    assert mx.isnan(broken.result).all().item()
    assert mx.isnan(broken.lse).all().item()


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="online_softmax: block_size: got 0, expected at least 1"):
        online_softmax(mx.ones(4), 0)
    with pytest.raises(ArgumentError, match=r"online_softmax: value: got \(5, 2\), expected \(4, E\)"):
        online_softmax(mx.ones(4), 2, mx.ones((5, 2)))
    with pytest.raises(ArgumentError, match="online_softmax: scores: got int32, expected a floating"):
        online_softmax(mx.array([1, 2]))
