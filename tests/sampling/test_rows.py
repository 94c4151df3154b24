"""The sampler of a batch: each row as alone, as after a restart, and as its parameters say."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import NumericError, Sampling
from tiny_llm.sampling.rows import Drawn, RowSampler
from tiny_llm.sampling.select import argmax

from ..support.generation.sampled_rows import sample_rows
from ..support.generation.sampling import assert_drawn_from, probabilities

VOCABULARY = 40
PROMPT = [3, 1, 4]
SAMPLINGS = [
    Sampling(),
    Sampling(temp=1.0),
    Sampling(),
    Sampling(temp=1.0),
    Sampling(temp=0.7, top_p=0.8),
    Sampling(temp=2.0, top_k=7, min_p=0.05),
    Sampling(presence_penalty=2.0, frequency_penalty=0.5),
    Sampling(temp=1.0, repetition_penalty=1.5, logit_bias={5: 2.0}),
    Sampling(min_tokens=6),
    Sampling(temp=1.0, min_tokens=3),
]


def logits_of(row: int, step: int, dtype=mx.bfloat16) -> mx.array:
    """The logits [1, V] of a row, which do not depend on the batch."""
    return mx.array(np.random.default_rng([row, step]).standard_normal((1, VOCABULARY)) * 3).astype(dtype)


def row(index: int, choice: int = 0) -> RowSampler:
    return RowSampler(SAMPLINGS[index], 11, choice, PROMPT, {0, 39})


def answers(indices, steps: int = 8, *, continued: dict[int, RowSampler] | None = None) -> list[list[int]]:
    """The answers of these rows in one batch."""
    rows = [(continued or {}).get(index) or row(index) for index in indices]
    for step in range(len(rows[0].tokens), steps):
        logits = mx.concatenate([logits_of(index, step) for index in indices])
        for each, drawn in zip(rows, sample_rows(logits, rows), strict=True):
            each.accept([drawn.token_id])
    return [each.tokens for each in rows]


def test_an_answer_is_the_same_alone_and_in_any_batch():
    everything = list(range(len(SAMPLINGS)))
    alone = [answers([index])[0] for index in everything]
    assert answers(everything) == alone
    assert answers(everything[::-1]) == alone[::-1]
    assert answers([0, 2]) == [alone[0], alone[2]]
    assert len({tuple(answer) for answer in alone}) == len(SAMPLINGS)


@pytest.mark.parametrize("done", [1, 5])
def test_an_answer_goes_on_from_its_tokens_as_if_it_had_not_been_interrupted(done):
    whole = answers(range(len(SAMPLINGS)))
    continued = {}
    for index, tokens in enumerate(whole):
        continued[index] = row(index)
        continued[index].accept(tokens[:done])
    assert answers(range(len(SAMPLINGS)), continued=continued) == whole


def test_choices_and_seeds_draw_on_their_own():
    """Also a fork, which is the same answer until then."""
    rows = [
        RowSampler(Sampling(temp=5.0), seed, choice, PROMPT, ()) for seed in (1, 2, -1) for choice in (0, 1)
    ]
    first = rows[0]
    rows.append(first.fork(7))
    first.accept([5])
    assert rows[-1].tokens == []
    rows.append(first.fork(8))
    for _ in range(12):
        drawn = sample_rows(mx.zeros((len(rows), VOCABULARY)), rows)
        for each, token in zip(rows, drawn, strict=True):
            each.accept([token.token_id])
    assert len({tuple(each.tokens) for each in rows}) == len(rows)
    assert rows[-1].tokens[0] == 5


def test_numbers_are_uniform_and_exact_in_float32():
    rows = [RowSampler(Sampling(temp=1.0), seed, 0, PROMPT, ()) for seed in range(4000)]
    numbers = np.array([each.uniform(0) for each in rows])
    assert (numbers.astype(np.float32) == numbers).all()
    assert numbers.max() < 1
    assert_drawn_from((numbers * 20).astype(int), np.full(20, 1 / 20))


@pytest.mark.parametrize(
    "given",
    [{"temp": 1.0}, {"temp": 0.6, "top_k": 5}, {"temp": 1.5, "top_p": 0.7}, {"temp": 1.0, "min_p": 0.2}],
)
def test_draws_have_the_distribution_of_the_filters(given):
    logits = mx.array([[1.0, 0.5, 0.0, -0.5, 2.0, 1.2, -1.0]])
    rows = [RowSampler(Sampling(**given), seed, 0, PROMPT, ()) for seed in range(3000)]
    drawn = sample_rows(mx.broadcast_to(logits, (len(rows), 7)), rows)
    assert_drawn_from(np.array([token.token_id for token in drawn]), probabilities(logits[0], **given))


def test_greedy_rows_take_the_argmax_beside_others():
    """Also without others, where no log probabilities are computed."""
    logits = mx.concatenate([logits_of(index, 0) for index in range(4)])
    wanted = argmax(logits).tolist()
    greedy = [RowSampler(Sampling(), 1, 0, PROMPT, ()) for _ in range(4)]
    assert sample_rows(logits, greedy) == [Drawn(token) for token in wanted]
    mixed = [*greedy[:3], RowSampler(Sampling(temp=1.0), 1, 0, PROMPT, ())]
    assert [drawn.token_id for drawn in sample_rows(logits, mixed)][:3] == wanted[:3]


@pytest.mark.parametrize("counts", [[0, 3, None, 20], [None, None, None, 0], [2, 2, 2, 2]])
@pytest.mark.parametrize("indices", [[0, 3, 6, 7], [6, 7, 8, 9]], ids=["mixed", "all changed"])
def test_log_probabilities_are_those_of_the_raw_logits(counts, indices):
    logits = mx.concatenate([logits_of(index, 0) for index in indices])
    rows = [row(index) for index in indices]
    for each in rows:
        each.accept([1, 1, 5])
    exact = np.array(logits.astype(mx.float32), np.float64)
    exact -= np.log(np.exp(exact).sum(axis=-1, keepdims=True))
    for drawn, count, wanted in zip(sample_rows(logits, rows, counts), counts, exact, strict=True):
        if count is None:
            assert (drawn.logprob, drawn.top) == (None, ())
            continue
        assert drawn.logprob == pytest.approx(wanted[drawn.token_id], abs=1e-5)
        assert [logprob for _, logprob in drawn.top] == pytest.approx(np.sort(wanted)[::-1][:count], abs=1e-5)
        assert [wanted[token] for token, _ in drawn.top] == pytest.approx([p for _, p in drawn.top], abs=1e-5)


def test_a_draw_beside_log_probabilities_is_the_same():
    logits = mx.concatenate([logits_of(index, 0) for index in range(len(SAMPLINGS))])
    rows = [row(index) for index in range(len(SAMPLINGS))]
    plain = [drawn.token_id for drawn in sample_rows(logits, rows)]
    assert [drawn.token_id for drawn in sample_rows(logits, rows, [3] * len(rows))] == plain


@pytest.mark.parametrize("place", [0, 20, VOCABULARY - 1])
@pytest.mark.parametrize("bad", [0, 3, 6])
def test_nan_fails_its_own_row(place, bad):
    indices = [0, 2, 3, 6, 8]
    logits = mx.concatenate([logits_of(index, 0) for index in indices])
    good = sample_rows(logits, [row(index) for index in indices])
    logits[indices.index(bad), place] = math.nan
    drawn = sample_rows(logits, [row(index) for index in indices])
    for index, found, before in zip(indices, drawn, good, strict=True):
        if index == bad:
            assert isinstance(found.error, NumericError)
        else:
            assert found == before
    (alone,) = sample_rows(logits[indices.index(bad)][None], [row(bad)])
    assert isinstance(alone.error, NumericError)


def test_a_row_that_allows_no_possible_token_fails():
    """A bias cannot do it, but a model that gives -inf to all but end tokens, with `min_tokens`."""
    logits = mx.full((2, 5), -math.inf)
    logits[:, 0] = 1.0
    rows = [RowSampler(Sampling(min_tokens=2), 1, 0, PROMPT, {0}), RowSampler(Sampling(), 1, 0, PROMPT, {0})]
    held_open, free = sample_rows(logits, rows)
    assert "probability 0" in str(held_open.error)
    assert free == Drawn(0)


def test_end_tokens_are_impossible_before_the_minimum():
    logits = mx.zeros((1, VOCABULARY))
    logits[:, 39] = 50.0
    for given in ({}, {"temp": 1.0}):
        each = RowSampler(Sampling(min_tokens=3, **given), 1, 0, PROMPT, {39})
        for _ in range(4):
            each.accept([sample_rows(logits, [each])[0].token_id])
        assert [token == 39 for token in each.tokens] == [False, False, False, True]
