"""top_p searches the best tokens of a large vocabulary first, with the result of a full sort."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_llm.sampling import draw as module
from tiny_llm.sampling.draw import TOP_P_CANDIDATES, draw, probabilities, random_key
from tiny_llm.sampling.params import Sampling

from ..support.generation import sampling as oracle

VOCABULARY = 3 * TOP_P_CANDIDATES[-1] + 5


def scores(kind: str) -> np.ndarray:
    random = np.random.default_rng(3)
    normal = random.standard_normal(VOCABULARY).astype(np.float32)
    masked = normal.copy()
    masked[100:] = -np.inf
    return {
        "peaked": 5 * normal,  # 0.9 of the mass lies on 600 tokens
        "flat": normal / 10,  # on most of them
        "masked": masked,  # fewer tokens than candidates have a chance
        "one": np.where(np.arange(VOCABULARY) == 7000, np.float32(40), normal),
        "steps": random.permutation(np.resize(np.float32([3, 2, 1, 0, -1]), VOCABULARY)),
    }[kind]


def assert_same_prefix(found: np.ndarray, expected: np.ndarray) -> None:
    """Equal tokens and probabilities, except at the limit: a float32 sum of thousands is inexact."""
    differ = (found == 0) != (expected == 0)
    assert np.maximum(found, expected)[differ].sum() < 1e-4
    np.testing.assert_allclose(found[~differ], expected[~differ], rtol=1e-3)


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("top_k", [None, 6000])
@pytest.mark.parametrize("kind", ["peaked", "flat", "masked", "one"])
def test_probabilities_of_a_large_vocabulary_are_those_of_the_oracle(kind, top_p, top_k):
    logits = scores(kind)
    found = np.array(probabilities(mx.array(logits), Sampling(1.0, top_p, top_k)))
    assert_same_prefix(found, oracle.probabilities(logits, top_p=top_p, top_k=top_k))


@pytest.mark.parametrize("top_p", [0.1, 0.6, 0.64, 0.9])
def test_of_equal_scores_at_the_limit_only_as_many_as_needed_are_kept(top_p):
    """Thousands of tokens equal the last candidate; the cut must not decide which are kept."""
    logits = scores("steps")
    found = np.array(probabilities(mx.array(logits), Sampling(1.0, top_p)))
    assert_same_prefix(found, oracle.probabilities(logits, top_p=top_p))


def test_a_row_that_needs_the_whole_vocabulary_does_not_affect_others():
    rows = mx.array(np.stack([scores("flat"), scores("peaked")]))
    together = probabilities(rows, Sampling(1.0, 0.9))
    alone = mx.stack([probabilities(row, Sampling(1.0, 0.9)) for row in rows])
    assert mx.array_equal(together, alone)


def test_draws_from_a_large_vocabulary_follow_the_probabilities():
    logits = np.full(VOCABULARY, -20, np.float32)
    logits[[9000, 17, 12000, 4]] = np.log(np.float32([0.4, 0.3, 0.2, 0.1]))
    chances = oracle.probabilities(logits, top_p=0.85)
    rows = mx.broadcast_to(mx.array(logits), (2000, VOCABULARY))
    oracle.assert_drawn_from(draw(rows, Sampling(1.0, 0.85), random_key(5)), chances)


@settings(max_examples=300)
@given(
    st.lists(st.lists(st.integers(-6, 6), min_size=9, max_size=9), min_size=1, max_size=3),
    st.floats(0.01, 0.99),
    st.none() | st.integers(1, 9),
    st.integers(1, 9),
)
def test_any_number_of_candidates_gives_the_result_of_a_full_sort(rows, top_p, top_k, candidates):
    """Bitwise, including which of two equal tokens is kept."""
    logits, sampling = mx.array(rows).astype(mx.float32), Sampling(1.0, top_p, top_k)
    sorted_all = probabilities(logits, sampling)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TOP_P_CANDIDATES", (candidates,))
        assert mx.array_equal(probabilities(logits, sampling), sorted_all)
