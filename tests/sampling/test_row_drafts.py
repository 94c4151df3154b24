"""Drafts in a batch: they change neither greedy nor seeded answers, and never a distribution."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import ArgumentError, Sampling
from tiny_llm.sampling.rows import RowSampler, verify_rows

from ..support.generation.sampled_rows import sample_rows
from ..support.generation.sampling import assert_drawn_from
from ..support.generation.sampling import probabilities as expected_probabilities

VOCABULARY = 12
PROMPT = [3, 1]
SAMPLINGS = [
    Sampling(),
    Sampling(temp=0.8),
    Sampling(frequency_penalty=2.0, repetition_penalty=1.4),
    Sampling(temp=1.0, presence_penalty=1.0, top_k=6),
    Sampling(min_tokens=7),
]


def logits_after(tokens) -> mx.array:
    """The logits [V] of a model for which each token depends on all before it."""
    return mx.array(np.random.default_rng([1, *tokens]).standard_normal(VOCABULARY) * 2).astype(mx.float32)


def verified(rows, drafts, **options):
    positions = [[*row.tokens, *each[:place]] for row, each in zip(rows, drafts, strict=True)
                 for place in range(len(each) + 1)]  # fmt: skip
    return verify_rows(mx.stack([logits_after(tokens) for tokens in positions]), rows, drafts, **options)


def answer(sampling: Sampling, drafts_of, length: int = 10) -> tuple[list[int], int]:
    """An answer with the drafts that a function makes of the tokens so far, and the number of steps."""
    row = RowSampler(sampling, 5, 1, PROMPT, {0})
    steps = 0
    while len(row.tokens) < length:
        ((*drawn,),) = verified([row], [drafts_of(row.tokens)])
        row.accept([each.token_id for each in drawn])
        steps += 1
    return row.tokens[:length], steps


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_drafts_change_the_number_of_steps_and_not_the_answer(sampling):
    plain, steps = answer(sampling, lambda tokens: [])
    assert steps == 10
    right, fewer = answer(sampling, lambda tokens: plain[len(tokens) : len(tokens) + 3])
    assert right == plain
    assert fewer < 6 or 0 in plain  # an end token is the last of a step
    wrong, _ = answer(sampling, lambda tokens: [(plain[min(len(tokens), 9)] + 1) % VOCABULARY, 1])
    half, _ = answer(sampling, lambda tokens: [*plain[len(tokens) : len(tokens) + 1], 2, 3])
    assert wrong == half == plain


def test_rows_with_and_without_drafts_share_a_step():
    rows = [RowSampler(sampling, 5, 1, PROMPT, {0}) for sampling in SAMPLINGS]
    plain = [answer(sampling, lambda tokens: [])[0] for sampling in SAMPLINGS]
    drafts = [tokens[: 2 * (index % 2)] for index, tokens in enumerate(plain)]
    for row_drawn, tokens, each in zip(verified(rows, drafts), plain, drafts, strict=True):
        found = [drawn.token_id for drawn in row_drawn]
        assert found == tokens[: len(found)]
        assert len(found) == len(each) + 1 or found[-1] == 0
    assert all(row.tokens == [] for row in rows)


def test_an_ending_token_is_the_last_of_a_step():
    """Drafts after it are of no use, even if they are right."""
    row = RowSampler(Sampling(stop_token_ids=[4], logit_bias={4: 100}), 1, 0, PROMPT, {0})
    ((drawn,),) = verified([row], [[4, 4, 4]])
    assert drawn.token_id == 4


def test_log_probabilities_belong_to_their_positions():
    row = RowSampler(Sampling(), 1, 0, PROMPT, ())
    plain, _ = answer(Sampling(), lambda tokens: [])
    (drawn,) = verified([row], [plain[:3]], logprobs=[2])
    assert [each.token_id for each in drawn] == plain[:4]
    for place, each in enumerate(drawn):
        logits = logits_after(plain[:place])
        assert each.logprob == pytest.approx((logits - mx.logsumexp(logits))[each.token_id].item(), abs=1e-5)
        assert each.top[0] == (each.token_id, each.logprob)


@pytest.mark.parametrize(
    "given",
    [
        {"temp": 1.0},
        {"temp": 0.7, "top_k": 3},
        {"temp": 1.0, "logit_bias": {2: 1.5}, "presence_penalty": 1.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("drawn_drafts", [True, False], ids=["drawn", "given"])
def test_tokens_have_the_distribution_of_the_model_for_drafts_of_another(given, drawn_drafts):
    """The first and the second token, with filters and penalties, against probabilities in float64."""
    logits = np.array([1.0, 0.0, 0.5, -0.5])
    draft_probs = np.array([[0.1, 0.4, 0.4, 0.1], [0.0, 0.0, 0.3, 0.7]])
    sampling = Sampling(**given)
    filters = {name: value for name, value in given.items() if name in ("temp", "top_k")}

    def wanted(before):
        row = logits.copy()
        for token, bias in sampling.logit_bias:
            row[token] += bias
        row[list(set(before))] -= sampling.presence_penalty
        return expected_probabilities(row, **filters)

    random, seen = np.random.default_rng(2), {(): [], **{(token,): [] for token in range(4)}}
    rows = [RowSampler(sampling, seed, 0, [0], ()) for seed in range(700)]
    drafts = [[int(random.choice(4, p=p)) for p in draft_probs] if drawn_drafts else [1, 3] for _ in rows]
    given_probs = [mx.array(draft_probs.astype(np.float32)) if drawn_drafts else None] * len(rows)
    all_logits = mx.broadcast_to(mx.array(logits.astype(np.float32)), (3 * len(rows), 4))
    accepted = 0
    for drawn in verify_rows(all_logits, rows, drafts, draft_probs=given_probs):
        tokens = [each.token_id for each in drawn]
        accepted += len(tokens) - 1
        seen[()].append(tokens[0])
        if len(tokens) > 1:
            seen[(tokens[0],)].append(tokens[1])
    assert accepted > 50
    for before, tokens in seen.items():
        probs = wanted(before)
        if len(tokens) * probs[probs > 0].min() >= 10:
            assert_drawn_from(np.array(tokens), probs)


def test_a_draft_of_the_same_distribution_is_always_accepted():
    sampling = Sampling(temp=1.0)
    logits = mx.array([[0.3, 0.2, -1.0]] * 2)
    probs = mx.softmax(logits[:1], axis=-1)
    for seed in range(40):
        (drawn,) = verify_rows(
            logits, [RowSampler(sampling, seed, 0, [0], ())], [[seed % 3]], draft_probs=[probs]
        )
        assert len(drawn) == 2
        assert drawn[0].token_id == seed % 3


def test_nan_after_accepted_drafts_fails_there():
    row = RowSampler(Sampling(), 1, 0, PROMPT, ())
    logits = mx.array([[0.0, 1.0], [0.0, float("nan")], [1.0, 0.0]])
    (drawn,) = verify_rows(logits, [row], [[1, 1]])
    assert drawn[0].token_id == 1
    assert drawn[-1].error is not None


def test_what_does_not_fit_together_is_refused():
    row = RowSampler(Sampling(), 1, 0, PROMPT, ())
    with pytest.raises(ArgumentError, match=r"^verify_rows: logits: got 2 rows, expected"):
        verify_rows(mx.zeros((2, 5)), [row], [[1, 2]])
    for draft in (-1, 5):
        with pytest.raises(ArgumentError, match=r"^verify_rows: drafts: got an id"):
            verify_rows(mx.zeros((2, 5)), [row], [[draft]])
    assert len(sample_rows(mx.zeros((0, 5)), [])) == 0
