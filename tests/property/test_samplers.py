"""Properties of sampling, tested on random scores and parameters."""

import mlx.core as mx
import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tiny_llm.sampling.draw import draw, probabilities, random_key
from tiny_llm.sampling.params import Sampling

from ..support.generation import sampling as oracle

TRY = settings(max_examples=200)
FEW = settings(max_examples=50)

SCORES = st.lists(st.integers(-40, 40).map(lambda n: n / 4), min_size=1, max_size=12)
SAMPLINGS = st.fixed_dictionaries(
    {
        "temp": st.sampled_from([1e-300, 0.2, 0.5, 1.0, 3.0]),
        "top_p": st.none() | st.floats(0.01, 0.99),
        "top_k": st.none() | st.integers(0, 14),
        "min_p": st.none() | st.floats(0.01, 0.99),
    }
)


def far_from_a_tie(scores, options) -> bool:
    """No prefix mass or probability is so close to a threshold that float32 may decide differently."""
    p = np.sort(oracle.probabilities(scores))[::-1]
    mass = options["top_p"] is None or np.abs(p.cumsum() - options["top_p"]).min() > 1e-4
    return mass and (not options["min_p"] or np.abs(p / p[0] - options["min_p"]).min() > 1e-4)


@TRY
@given(st.lists(st.integers(-60, 60), min_size=1, max_size=12, unique=True), SAMPLINGS)
def test_probabilities_are_those_of_the_oracle(scores, options):
    scores = np.array(scores) / 8  # all different, because the order of equal tokens is undefined
    assume(far_from_a_tie(scores, options))
    found = probabilities(mx.array(scores, dtype=mx.float32), Sampling(**options))
    np.testing.assert_allclose(np.array(found), oracle.probabilities(scores, **options), atol=1e-5)


@TRY
@given(SCORES, SAMPLINGS)
def test_with_ties_the_sorted_probabilities_equal_the_oracle(scores, options):
    """With ties the order of tokens is undefined."""
    assume(far_from_a_tie(scores, options))
    found = np.array(probabilities(mx.array(scores), Sampling(**options)))
    np.testing.assert_allclose(np.sort(found), np.sort(oracle.probabilities(scores, **options)), atol=1e-5)


@FEW
@given(SCORES, SAMPLINGS, st.integers(0, 1000))
def test_a_drawn_token_has_a_positive_probability(scores, options, seed):
    sampling = Sampling(**options)
    rows = mx.broadcast_to(mx.array(scores), (200, len(scores)))
    chances = np.array(probabilities(mx.array(scores), sampling))
    assert (chances[np.array(draw(rows, sampling, random_key(seed)))] > 0).all()


@FEW
@given(st.integers(2, 5), st.integers(1, 9), SAMPLINGS, st.integers(0, 1000))
def test_a_row_does_not_depend_on_the_others(rows, tokens, options, seed):
    logits = mx.array(np.random.default_rng(seed).standard_normal((rows, tokens)), dtype=mx.float32)
    together = probabilities(logits, Sampling(**options))
    alone = mx.concatenate([probabilities(row[None], Sampling(**options)) for row in logits])
    assert mx.array_equal(together, alone)


@FEW
@given(SCORES, SAMPLINGS, st.integers(-(2**63), 2**63 - 1), st.lists(st.integers(0, 2**40), max_size=3))
def test_a_draw_is_a_function_of_its_arguments(scores, options, seed, counters):
    """It changes neither the global random state nor its input."""
    logits, sampling = mx.array(scores), Sampling(**options)
    state = mx.random.state[0].tolist()
    first = draw(logits[None], sampling, random_key(seed, *counters))
    assert draw(logits[None], sampling, random_key(seed, *counters)).item() == first.item()
    assert mx.random.state[0].tolist() == state
    assert logits.tolist() == scores


@FEW
@given(st.floats(0, 1), st.integers(0, 5), st.sampled_from([mx.float32, mx.float16, mx.bfloat16]))
def test_the_best_token_always_stays(top_p, top_k, dtype):
    logits = mx.array(np.random.default_rng(top_k).standard_normal((3, 50))).astype(dtype)
    chances = probabilities(logits, Sampling(temp=1.0, top_p=top_p, top_k=top_k, min_p=1.0))
    assert chances.dtype == mx.float32
    likeliest = mx.take_along_axis(logits, chances.argmax(axis=-1, keepdims=True), axis=-1)
    assert mx.array_equal(likeliest, logits.max(axis=-1, keepdims=True))
    assert mx.allclose(chances.sum(axis=-1), mx.ones(3))
