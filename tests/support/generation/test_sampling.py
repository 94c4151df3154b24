"""The chi-square test of draws can fail, and the reference probabilities are right."""

import numpy as np
import pytest

from .sampling import assert_drawn_from, probabilities

P = np.array([0.5, 0.3, 0.15, 0.05, 0.0])


def test_fair_draws_pass():
    assert_drawn_from(np.random.default_rng(0).choice(5, size=20_000, p=P), P)


def test_a_small_bias_fails():
    biased = np.array([0.53, 0.27, 0.15, 0.05, 0.0])
    with pytest.raises(AssertionError, match="chi-square"):
        assert_drawn_from(np.random.default_rng(0).choice(5, size=20_000, p=biased), P)


def test_one_impossible_token_fails():
    draws = np.random.default_rng(0).choice(5, size=20_000, p=P)
    draws[77] = 4
    with pytest.raises(AssertionError, match="probability 0"):
        assert_drawn_from(draws, P)


def test_too_few_draws_fail():
    with pytest.raises(AssertionError, match="too few"):
        assert_drawn_from(np.zeros(50, int), P)


def test_probabilities_worked_out_by_hand():
    logits = np.log([0.5, 0.3, 0.15, 0.05])
    assert probabilities(logits, top_k=2) == pytest.approx([0.625, 0.375, 0, 0])
    assert probabilities(logits, top_p=0.6) == pytest.approx([0.625, 0.375, 0, 0])
    assert probabilities(logits, min_p=0.2) == pytest.approx([0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0])
    assert probabilities(logits, temp=0.5, top_k=2) == pytest.approx([25 / 34, 9 / 34, 0, 0])
    assert probabilities(logits, temp=0) == pytest.approx([1, 0, 0, 0])
