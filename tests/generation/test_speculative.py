"""Rejection sampling: for every draft, tokens have the distribution of the verifying model."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.generation.speculative import fit_vocabulary, speculative_tokens, verify_greedy, verify_sampled
from tiny_llm.sampling.draw import random_key
from tiny_llm.sampling.params import Sampling

from ..support.generation.fake_models import CachedFake
from ..support.generation.sampling import assert_drawn_from

WANTED = np.array([[0.5, 0.3, 0.2, 0.0], [0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 0.9, 0.1]])
DRAFTS = {
    "the same": WANTED[:2],
    "uniform": np.full((2, 4), 0.25),
    "certain of an impossible token": np.array([[0.0, 0, 0, 1], [1.0, 0, 0, 0]]),
    "certain of the right token": np.array([[1.0, 0, 0, 0], [0.0, 0, 0, 1]]),
    "blind to a token": np.array([[0.0, 0.6, 0.4, 0.0], [0.5, 0.5, 0.0, 0.0]]),
}


@pytest.mark.parametrize("draft", DRAFTS)
def test_tokens_are_distributed_as_wanted(draft):
    """The first always; each further one where all guesses before it were accepted."""
    drafted, random = DRAFTS[draft], np.random.default_rng(1)
    wanted, given = mx.array(WANTED.astype(np.float32)), mx.array(drafted.astype(np.float32))
    seen: list[list[int]] = [[], [], []]
    for trial in range(4000):
        guesses = [int(random.choice(4, p=row)) for row in drafted]
        keys = (random_key(5, trial, 0), random_key(5, trial, 1))
        accepted, token = verify_sampled(wanted, given, mx.array(guesses), keys)
        for place, drawn in enumerate([*guesses[: accepted.item()], token.item()]):
            seen[place].append(drawn)
    assert_drawn_from(np.array(seen[0]), WANTED[0])
    for place in (1, 2):
        if len(seen[place]) > 300:
            assert_drawn_from(np.array(seen[place]), WANTED[place])
        else:
            assert draft == "certain of an impossible token"


def test_guesses_of_the_wanted_distribution_are_all_accepted():
    """min(1, p / q) is 1; also where both give a token next to nothing."""
    wanted = mx.array([[1e-7, 1 - 1e-7], [0.5, 0.5]])
    for trial in range(50):
        accepted, _ = verify_sampled(wanted, wanted[:1], mx.array([0]), (random_key(trial), None))
        assert accepted.item() == 1


def test_rows_equal_up_to_rounding_still_give_a_token():
    """A guess is rejected although wanted - drafted is 0 everywhere; then the token comes from `wanted`."""
    wanted, drafted = mx.array([[0.0, 0.0, 0.5], [1.0, 0.0, 0.0]]), mx.array([[0.0, 0.5, 0.5]])
    accepted, token = verify_sampled(wanted, drafted, mx.array([1]), (None, None))
    assert (accepted.item(), token.item()) == (0, 2)


def test_without_guesses_the_token_is_drawn_from_the_model():
    """With no drafts, only the model runs."""
    nothing = mx.zeros((0, 4)), mx.zeros(0, mx.uint32)
    row = mx.array(WANTED[1:2].astype(np.float32))
    results = [verify_sampled(row, *nothing, (None, random_key(9, trial))) for trial in range(1000)]
    assert {accepted.item() for accepted, _ in results} == {0}
    assert_drawn_from(np.array([token.item() for _, token in results]), WANTED[1])


@pytest.mark.parametrize(("guesses", "accepted", "token"), [([1, 2], 2, 0), ([1, 1], 1, 2), ([0, 2], 0, 1)])
def test_greedy_accepts_guesses_up_to_the_first_that_differs(guesses, accepted, token):
    logits = mx.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    assert [array.item() for array in verify_greedy(logits, mx.array(guesses))] == [accepted, token]


def test_padding_of_a_vocabulary_is_cut_or_made_impossible():
    logits = mx.array([[1.0, 2.0, 3.0]])
    assert fit_vocabulary(logits, 2).tolist() == [[1, 2]]
    assert fit_vocabulary(logits, 4).tolist() == [[1, 2, 3, -float("inf")]]
    assert fit_vocabulary(logits, 3).tolist() == logits.tolist()


@pytest.mark.parametrize("sampling", [{"temp": 1.0}, {"temp": 0.7, "top_p": 0.8}], ids=["plain", "filtered"])
def test_whole_answers_are_distributed_as_the_model_alone_would_draw_them(sampling):
    """All answers of three tokens from a language of two, where each token depends on all before it."""

    def chances(context, seed):
        p = 0.2 + 0.6 * np.random.default_rng([seed, *context]).random()
        return np.array([p, 1 - p])

    def model(seed):
        return CachedFake(lambda context: np.log(chances(context, seed)))

    def sharpened(context):
        p = chances(context, 1)
        if "top_p" in sampling and p.max() >= sampling["top_p"]:
            p = p * (p == p.max())
        p = p ** (1 / sampling["temp"])
        return p / p.sum()

    answers = list(itertools.product([0, 1], repeat=3))
    expected = [
        np.prod([sharpened((7, *answer[:i]))[answer[i]] for i in range(3)]).item() for answer in answers
    ]
    target, draft = model(1), model(2)
    drawn = []
    for seed in range(800):
        how = Sampling(**sampling, seed=seed)
        tokens = speculative_tokens(draft, target, [7], how, 3, drafts=2, prefill_step=8)
        drawn.append(answers.index(tuple(tokens)))
    assert_drawn_from(np.array(drawn), np.array(expected))
