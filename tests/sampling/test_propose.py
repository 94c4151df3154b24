"""Drafts of a small model follow the parameters of their row."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import Sampling
from tiny_llm.sampling.propose import propose
from tiny_llm.sampling.rows import RowSampler

from ..support.generation.sampling import assert_drawn_from, probabilities

LOGITS = [1.0, 0.0, 0.5, -0.5]


def row_of(seed=0, **given):
    return RowSampler(Sampling(**given), seed, 0, [0], ())


def test_greedy_rows_propose_their_best_token_after_penalties_and_earlier_drafts():
    rows = [row_of(), row_of(logit_bias={3: 5.0}), row_of(presence_penalty=0.8), row_of(temp=1.0, top_k=1)]
    drafts = propose(mx.array([LOGITS] * 4), rows, [[], [], [0], []])
    assert [draft.token_id for draft in drafts] == [0, 3, 2, 0]
    assert [draft.probs is None for draft in drafts] == [True, True, True, False]
    plain = propose(mx.array([LOGITS[::-1], LOGITS]), rows[:1] * 2, [[], [1]])
    assert [draft.token_id for draft in plain] == [3, 0]


@pytest.mark.parametrize("given", [{"temp": 0.7}, {"temp": 1.3, "top_k": 3}], ids=str)
def test_sampled_rows_propose_from_the_distribution_that_they_return(given):
    rows = [row_of(seed, **given) for seed in range(500)]
    drafts = propose(mx.array([LOGITS] * 500), rows, [[2]] * 500)
    expected = probabilities(LOGITS, **given)
    np.testing.assert_allclose(np.array(drafts[7].probs), expected, atol=1e-6)
    assert_drawn_from(np.array([draft.token_id for draft in drafts]), expected)
    # Independent of the number that draws the token at the same place.
    again = [row.uniform(1) < 0.5 for row in rows]
    halves = [draft.token_id for draft, low in zip(drafts, again, strict=True) if low]
    assert_drawn_from(np.array(halves), expected)


def test_logits_that_are_nan_give_a_token_of_the_vocabulary():
    rows = [row_of(), row_of(temp=1.0)]
    drafts = propose(mx.full((2, 4), mx.nan), rows, [[], []])
    assert all(0 <= draft.token_id < 4 for draft in drafts)


def test_a_fault_of_a_grammar_gives_a_draft_without_its_mask(monkeypatch):
    """It is reported when the drafts are verified; the other rows go on."""

    def fail(drafts):
        raise ValueError("a fault of llguidance")

    rows = [row_of(logit_bias={3: 5.0}), row_of(logit_bias={2: 5.0})]
    monkeypatch.setattr(rows[0], "mask_after", fail)
    drafts = propose(mx.array([LOGITS] * 2), rows, [[], []])
    assert [draft.token_id for draft in drafts] == [3, 2]
