"""Penalties, biases and early end tokens, compared with their definition in NumPy."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import Sampling
from tiny_llm.sampling.processors import logits_processors

from ..support.refusal import refused

PROMPT, ANSWER = [3, 1, 4], [1, 5, 1, 1]
ENDINGS = frozenset({0, 7})
SAMPLINGS = [
    {"presence_penalty": 1.5},
    {"frequency_penalty": -0.75},
    {"presence_penalty": -0.5, "frequency_penalty": 2.0},
    {"logit_bias": {2: 100, 5: -7.5}},
    {"min_tokens": 5},
    {"min_tokens": 4},
    {"repetition_penalty": 1.3, "presence_penalty": 1.0, "logit_bias": {1: 3.0}, "min_tokens": 9},
]


def expected(logits, sampling: Sampling) -> np.ndarray:
    """One row by the rules of `Sampling`, in its order."""
    row = np.array(logits.astype(mx.float32), np.float64)[0]
    if sampling.repetition_penalty is not None:
        for token in {*PROMPT, *ANSWER}:
            row[token] *= sampling.repetition_penalty ** (-1 if row[token] > 0 else 1)
    for token in set(ANSWER):
        row[token] -= sampling.presence_penalty + sampling.frequency_penalty * ANSWER.count(token)
    for token, bias in sampling.logit_bias:
        row[token] += bias
    if len(ANSWER) < sampling.min_tokens:
        row[list(ENDINGS)] = -np.inf
    return row


@pytest.mark.parametrize("given", SAMPLINGS, ids=str)
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_logits_are_changed_as_defined(given, dtype):
    sampling = Sampling(**given)
    logits = mx.array(np.random.default_rng(1).standard_normal((1, 9)) * 3).astype(dtype)
    found = logits
    for process in logits_processors(sampling, len(PROMPT), ENDINGS):
        found = process(mx.array([*PROMPT, *ANSWER]), found)
    exact = dtype == mx.float32 or sampling.repetition_penalty is None
    np.testing.assert_allclose(
        np.array(found.astype(mx.float32))[0], expected(logits, sampling), atol=1e-5 if exact else 0.05
    )


def test_before_the_first_token_the_penalties_of_the_answer_change_nothing():
    logits = mx.array([[1.0, 2.0, 3.0, 4.0, 5.0]])
    sampling = Sampling(presence_penalty=2, frequency_penalty=2)
    for process in logits_processors(sampling, len(PROMPT)):
        assert process(mx.array(PROMPT), logits).tolist() == logits.tolist()


def test_a_bias_outside_of_an_unknown_vocabulary_is_refused_when_it_is_known():
    (process,) = logits_processors(Sampling(logit_bias={9: 1.0}), 1)
    assert process(mx.array([1]), mx.zeros((1, 10))).tolist()[0][9] == 1
    with refused("logit_bias", function="Sampling"):
        process(mx.array([1]), mx.zeros((1, 9)))
