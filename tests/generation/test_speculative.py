"""Rejection sampling: for every draft, tokens have the distribution of the verifying model."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.generation.speculative import speculative_tokens, verify_greedy, verify_sampled
from tiny_llm.sampling.draw import random_key
from tiny_llm.sampling.params import Sampling
from tiny_llm.sampling.verify import fit_vocabulary

from ..support.generation.fake_models import CachedFake
from ..support.generation.sampling import assert_drawn_from

TARGET = np.array([[0.5, 0.3, 0.2, 0.0], [0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 0.9, 0.1]])
DRAFTS = {
    "the same": TARGET[:2],
    "uniform": np.full((2, 4), 0.25),
    "certain of an impossible token": np.array([[0.0, 0, 0, 1], [1.0, 0, 0, 0]]),
    "certain of the right token": np.array([[1.0, 0, 0, 0], [0.0, 0, 0, 1]]),
    "blind to a token": np.array([[0.0, 0.6, 0.4, 0.0], [0.5, 0.5, 0.0, 0.0]]),
}


@pytest.mark.parametrize("draft", DRAFTS)
def test_tokens_have_the_distribution_of_the_target_model(draft):
    """The first always; each further one if all drafts before it were accepted."""
    probs, random = DRAFTS[draft], np.random.default_rng(1)
    target_probs, draft_probs = mx.array(TARGET.astype(np.float32)), mx.array(probs.astype(np.float32))
    seen: list[list[int]] = [[], [], []]
    for trial in range(4000):
        draft_ids = [int(random.choice(4, p=row)) for row in probs]
        keys = (random_key(5, trial, 0), random_key(5, trial, 1))
        accepted, token = verify_sampled(target_probs, draft_probs, mx.array(draft_ids), keys)
        for place, drawn in enumerate([*draft_ids[: accepted.item()], token.item()]):
            seen[place].append(drawn)
    assert_drawn_from(np.array(seen[0]), TARGET[0])
    for place in (1, 2):
        if len(seen[place]) > 300:
            assert_drawn_from(np.array(seen[place]), TARGET[place])
        else:
            assert draft == "certain of an impossible token"


def test_drafts_from_the_target_distribution_are_all_accepted():
    """min(1, p / q) is 1; also for tiny probabilities."""
    target_probs = mx.array([[1e-7, 1 - 1e-7], [0.5, 0.5]])
    for trial in range(50):
        accepted, _ = verify_sampled(target_probs, target_probs[:1], mx.array([0]), (random_key(trial), None))
        assert accepted.item() == 1


def test_rows_equal_up_to_rounding_still_give_a_token():
    """A draft is rejected, but target - draft is 0 everywhere: the token is sampled from `target_probs`."""
    target_probs, draft_probs = mx.array([[0.0, 0.0, 0.5], [1.0, 0.0, 0.0]]), mx.array([[0.0, 0.5, 0.5]])
    accepted, token = verify_sampled(target_probs, draft_probs, mx.array([1]), (None, None))
    assert (accepted.item(), token.item()) == (0, 2)


def test_without_drafts_the_token_is_drawn_from_the_model():
    """With no drafts, only the model runs."""
    nothing = mx.zeros((0, 4)), mx.zeros(0, mx.uint32)
    row = mx.array(TARGET[1:2].astype(np.float32))
    results = [verify_sampled(row, *nothing, (None, random_key(9, trial))) for trial in range(1000)]
    assert {accepted.item() for accepted, _ in results} == {0}
    assert_drawn_from(np.array([token.item() for _, token in results]), TARGET[1])


@pytest.mark.parametrize(("draft_ids", "accepted", "token"), [([1, 2], 2, 0), ([1, 1], 1, 2), ([0, 2], 0, 1)])
def test_greedy_accepts_drafts_up_to_the_first_that_differs(draft_ids, accepted, token):
    logits = mx.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    assert [array.item() for array in verify_greedy(logits, mx.array(draft_ids))] == [accepted, token]


def test_padding_of_a_vocabulary_is_cut_or_made_impossible():
    logits = mx.array([[1.0, 2.0, 3.0]])
    assert fit_vocabulary(logits, 2).tolist() == [[1, 2]]
    assert fit_vocabulary(logits, 4).tolist() == [[1, 2, 3, -float("inf")]]
    assert fit_vocabulary(logits, 3).tolist() == logits.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [{"temp": 1.0}, {"temp": 0.7, "top_p": 0.8}], ids=["plain", "filtered"])
def test_whole_answers_are_distributed_as_the_model_alone_would_draw_them(sampling):
    """All answers of three tokens from a language of two, where each token depends on all before it."""

    def next_probs(context, seed):
        p = 0.2 + 0.6 * np.random.default_rng([seed, *context]).random()
        return np.array([p, 1 - p])

    def model(seed):
        return CachedFake(lambda context: np.log(next_probs(context, seed)))

    def sharpened(context):
        p = next_probs(context, 1)
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
        tokens = speculative_tokens(draft, target, [7], how, 3, num_draft_tokens=2, prefill_step=8)
        drawn.append(answers.index(tuple(tokens)))
    assert_drawn_from(np.array(drawn), np.array(expected))
