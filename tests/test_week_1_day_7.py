"""Week 1, day 7: sampling, and the extension. Task 2 checks that the extension builds, loads and computes."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from extensions import tiny_llm_ext

from .support.cases import DTYPE_IDS, DTYPES, normal
from .support.generation.sampling import assert_drawn_from, log, probabilities
from .support.refusal import refused
from .support.tolerance import to_float64
from .tiny_llm_base import make_sampler
from .utils import assert_rounded_once, on_each_device

# Task 1: the sampler

P = [0.05, 0.4, 0.3, 0.05, 0.2]
DRAWS = 10_000


def draws(sampler, logprobs, count=DRAWS):
    """That many draws from one row of scores."""
    return sampler(mx.broadcast_to(logprobs, (count, logprobs.size)))


@on_each_device
@pytest.mark.parametrize("shape", [(1, 33), (7, 33), (2, 3, 33)], ids=str)
def test_task_1_no_temperature_takes_the_most_probable_token(stream, shape):
    """With any filters."""
    logits = normal(*shape)
    with mx.stream(stream):
        for filters in [(None, None), (0.3, None), (None, 2), (0.3, 2)]:
            ids = make_sampler(0, *filters)(logits)
            assert ids.tolist() == mx.argmax(logits, axis=-1).tolist()


@on_each_device
@pytest.mark.parametrize("temp", [0.3, 1.0, 2.0])
def test_task_1_temperature_sharpens_and_flattens(stream, temp):
    """A token's chance is proportional to its probability to the power of 1 / temp."""
    with mx.stream(stream):
        ids = draws(make_sampler(temp, None, None), log(P), 40_000)
        assert_drawn_from(ids, probabilities(np.log(P), temp))


@on_each_device
@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_task_1_top_k_keeps_the_k_most_probable(stream, top_k):
    """And no other, with the chances that they have among themselves."""
    with mx.stream(stream):
        ids = draws(make_sampler(1.0, None, top_k), log(P))
        assert_drawn_from(ids, probabilities(np.log(P), top_k=top_k))


@on_each_device
@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(0.01, 1), (0.4, 1), (0.41, 2), (0.7, 2), (0.71, 3), (0.9, 3), (0.99, 5)],
)
def test_task_1_top_p_keeps_the_token_that_crosses(stream, top_p, kept):
    """The shortest prefix whose mass reaches top_p, at least one token: 0.4, 0.3, 0.2, 0.05, 0.05."""
    with mx.stream(stream):
        ids = draws(make_sampler(1.0, top_p, None), log(P))
        assert_drawn_from(ids, probabilities(np.log(P), top_k=kept))


@on_each_device
def test_task_1_top_p_includes_the_mass_that_top_k_removed(stream):
    """After top_k = 2 a mass of 0.7 is left; 0.5 of the whole needs both tokens, 0.5 of the rest only one."""
    with mx.stream(stream):
        ids = draws(make_sampler(1.0, 0.5, 2), log(P))
        assert_drawn_from(ids, probabilities(np.log(P), top_k=2))


@on_each_device
def test_task_1_scores_are_normalised_and_not_modified(stream):
    """A constant added to all scores changes nothing, and the caller's array stays what it was."""
    scores = log(P)
    before = np.array(scores)
    with mx.stream(stream):
        for shift in (-30.0, 0.0, 30.0):
            ids = draws(make_sampler(1.0, 0.65, 4), scores + shift)
            assert_drawn_from(ids, probabilities(np.log(P), top_k=2))
    assert np.array_equal(np.array(scores), before)


@on_each_device
@pytest.mark.parametrize(("top_p", "top_k"), [(None, 4), (0.94, None), (0.94, 4)])
def test_task_1_of_equal_tokens_no_more_stay_than_needed(stream, top_p, top_k):
    """The fourth and the fifth token have the same probability: one of them stays."""
    with mx.stream(stream):
        ids = draws(make_sampler(1.0, top_p, top_k), log(P))
        assert len({0, 3} & set(ids.tolist())) == 1


@on_each_device
@pytest.mark.parametrize("top_p", [None, 0, -1, 1, 1.5])
@pytest.mark.parametrize("top_k", [None, 0, 5, 99])
def test_task_1_filters_can_be_off(stream, top_p, top_k):
    """None, or a number that leaves nothing out."""
    with mx.stream(stream):
        assert_drawn_from(draws(make_sampler(1.0, top_p, top_k), log(P)), np.array(P))


@on_each_device
def test_task_1_rows_are_independent(stream):
    """What one row filters out another may keep; each draws for itself, in any leading shape."""
    rows = mx.array([[0.0, 0, 9, 9], [9.0, 9, 0, 0], [0.0, 9, 9, 0]])
    many = mx.broadcast_to(rows[None], (500, 3, 4))
    with mx.stream(stream):
        for sampler in (make_sampler(1.0, None, 2), make_sampler(1.0, 0.9, None), make_sampler(1.0, 0.9, 2)):
            ids = np.array(sampler(many))
            assert ids.shape == (500, 3)
            assert [sorted(set(ids[:, row])) for row in range(3)] == [[2, 3], [0, 1], [1, 2]]


def test_task_1_tiny_temperatures_are_greedy():
    """Where a division by the temperature overflows, the best token is still the best."""
    logits = mx.stack([normal(100), 1000 * normal(100, seed=1), log([0.0] * 99 + [1.0])])
    for temp in (1e-6, 1e-30, 1e-45, 1e-300):
        assert make_sampler(temp, None, None)(logits).tolist() == mx.argmax(logits, axis=-1).tolist()


def test_task_1_draws_repeat_with_the_seed_of_mlx():
    """And differ without."""
    logits = mx.zeros((50, 1000))
    sampler = make_sampler(1.0, 0.9, 900)
    mx.random.seed(7)
    first, second = sampler(logits).tolist(), sampler(logits).tolist()
    mx.random.seed(7)
    assert sampler(logits).tolist() == first != second


def test_task_1_a_seed_of_its_own_makes_a_sampler_repeat():
    """Call by call, whatever else draws; seeds that are neighbours have nothing in common."""
    logits = mx.zeros((1, 1000))

    def ten(seed):
        sampler = make_sampler(1.0, None, None, seed=seed)
        return [(sampler(logits).item(), mx.random.uniform().item())[0] for _ in range(10)]

    runs = {seed: ten(seed) for seed in (-(2**63), -1, 0, 1, 2, 2**32, 2**63 - 1)}
    assert {seed: ten(seed) for seed in runs} == runs
    drawn = [number for run in runs.values() for number in run]
    assert len(set(drawn)) > 60  # of 70: chance alone makes two or three pairs


@on_each_device
@pytest.mark.parametrize(
    ("min_p", "kept"), [(None, 5), (0, 5), (0.1, 5), (0.4, 3), (0.6, 2), (0.9, 1), (1, 1)]
)
def test_task_1_min_p_is_relative_to_the_best_token(stream, min_p, kept):
    """min_p times the probability of the most probable token, 0.4."""
    with mx.stream(stream):
        ids = draws(make_sampler(1.0, None, None, min_p=min_p), log(P))
        assert_drawn_from(ids, probabilities(np.log(P), top_k=kept))


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("temp", -0.1),
        ("temp", float("nan")),
        ("temp", float("inf")),
        ("top_p", float("nan")),
        ("top_k", -1),
        ("top_k", 2.5),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("seed", 2**63),
    ],
)
def test_task_1_invalid_parameters_are_refused(argument, value):
    """When the sampler is made, not when it draws."""
    with refused(argument, function="make_sampler"):
        make_sampler(**{"temp": 1.0, "top_p": None, "top_k": None, argument: value})


# Task 2: src/extensions builds, loads and shares arrays with MLX


@on_each_device
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(
    "shapes", [((3, 5), (3, 5)), ((3, 5), (5,)), ((3, 1), (4, 1, 5)), ((), (2,))], ids=str
)
def test_task_2_axpby(stream, shapes, dtype):
    x, y = (normal(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes))
    with mx.stream(stream):
        result = tiny_llm_ext.axpby(x, y, 2.5, -0.5)
        assert_rounded_once(result, 2.5 * to_float64(x) - 0.5 * to_float64(y), dtype)


@on_each_device
def test_task_2_axpby_on_a_stream_given_by_name(stream):
    """Integers serve as factors, and the gradient comes with the operations that it is made of."""
    x, y = normal(4, seed=1), normal(4, seed=2)
    result = tiny_llm_ext.axpby(x, y, 2, 3, stream=stream)
    gradient = mx.grad(lambda x: mx.sum(tiny_llm_ext.axpby(x, y, 2, 3, stream=stream)))(x)
    assert mx.allclose(result, 2 * x + 3 * y, stream=stream)
    assert mx.array_equal(gradient, mx.full((4,), 2.0), stream=stream)


@pytest.mark.parametrize(("argument", "position"), [("x", 0), ("y", 1)])
def test_task_2_axpby_refuses_integers(argument, position):
    inputs = [mx.zeros((2,)), mx.zeros((2,))]
    inputs[position] = mx.zeros((2,), dtype=mx.int32)
    with pytest.raises(ValueError, match=rf"^axpby: {argument}: got .*int32, expected float32"):
        tiny_llm_ext.axpby(*inputs, 1.0, 1.0)


def test_task_2_axpby_refuses_shapes_that_do_not_broadcast():
    with pytest.raises(ValueError, match=r"^axpby: y: got \(3,\), expected"):
        tiny_llm_ext.axpby(mx.zeros((2,)), mx.zeros((3,)), 1.0, 1.0)


def test_task_2_load_library_accepts_the_folder_of_the_package():
    """The Metal library is registered where there is Metal; elsewhere there is nothing to do."""
    assert tiny_llm_ext.load_library(mx.gpu, str(Path(tiny_llm_ext.__file__).parent)) is None
