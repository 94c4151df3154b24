"""A draw is the first index at which the running sum of probabilities exceeds its uniform number."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.runtime.extension import load_extension

from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.generation.sampling import assert_drawn_from
from ...support.refusal import case_id, refused
from ...support.rows import LAYOUTS, same_when_mapped
from ...support.tolerance import to_float64

categorical = load_extension().categorical


def uniform(*shape: int) -> mx.array:
    return mx.array(np.random.default_rng(7).random(shape, np.float32))


def check(logits: mx.array, numbers: mx.array) -> None:
    """The index is that of the definition, unless the number is within float32 rounding of a border."""
    found = categorical(logits, numbers)
    assert found.dtype == mx.uint32
    assert found.shape == numbers.shape
    wide = to_float64(logits).reshape(-1, logits.shape[-1])
    for row, number, index in zip(
        wide, np.array(numbers).reshape(-1), np.array(found).reshape(-1), strict=True
    ):
        weights = np.exp(row - row.max())
        reached = weights.cumsum() / weights.sum()
        assert weights[index] > 0
        assert reached[index] > number - 1e-5
        assert index == 0 or reached[index - 1] <= number + 1e-5


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 33, 1023, 1024, 1025, 5000])
def test_each_size_and_dtype(size, dtype):
    check((3 * normal(40, size)).astype(dtype), uniform(40))


def test_the_ends_of_the_range():
    """0 draws the first index of nonzero probability, the largest number below 1 the last."""
    logits = mx.array([-mx.inf, -mx.inf, 0.5, -1, 0.5, -mx.inf, -mx.inf])
    logits = mx.concatenate([mx.full(2000, -mx.inf), logits, mx.full(3000, -mx.inf)])
    numbers = mx.array([0.0, 1 - 2.0**-24])
    assert categorical(mx.stack([logits, logits]), numbers).tolist() == [2002, 2004]


def test_draws_follow_the_probabilities():
    p = np.array([0.05, 0.4, 0.3, 0.05, 0.2])
    ids = categorical(mx.broadcast_to(mx.log(mx.array(p)), (20_000, 5)).astype(mx.float32), uniform(20_000))
    assert_drawn_from(ids, p)


def test_rows_without_probabilities_give_some_index():
    """It is within the row."""
    rows = mx.array([[mx.nan, 1, 2], [1, 2, mx.nan], [mx.inf, 1, 2], [-mx.inf] * 3, [mx.inf, mx.inf, 0]])
    assert mx.all(categorical(rows, uniform(5)) < 3)
    assert categorical(rows, uniform(5))[2].item() == 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    logits, numbers = normal(3, 4, 70), uniform(3, 4)
    assert mx.array_equal(categorical(layout(logits), layout(numbers)), categorical(logits, numbers))


def test_shapes():
    assert categorical(normal(9), mx.array(0.5)).shape == ()
    assert categorical(mx.zeros((0, 9)), mx.zeros(0)).shape == (0,)
    check(normal(2, 3, 9), uniform(2, 3))
    check(normal(30, 20_000), uniform(30))  # on several threads


@pytest.mark.parametrize("axes", [(0, 0), (1, None), (None, 0)], ids=str)
def test_vmap(axes):
    same_when_mapped(lambda x, u: categorical(x, u % 1), [normal(4, 30), uniform(4)], axes)


def test_shapeless_compile():
    compiled = mx.compile(categorical, shapeless=True)
    for rows in (1, 5):
        logits, numbers = normal(rows, 30), uniform(rows)
        assert mx.array_equal(compiled(logits, numbers), categorical(logits, numbers))


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("logits", {"logits": mx.zeros((2, 5), dtype=mx.int32)}),
        ("logits", {"logits": mx.zeros((2, 0))}),
        ("logits", {"logits": mx.array(1.0)}),
        ("uniform", {"uniform": mx.zeros(2, dtype=mx.float16)}),
        ("uniform", {"uniform": mx.zeros(3)}),
        ("uniform", {"uniform": mx.zeros((2, 1))}),
    ],
    ids=case_id,
)
def test_refused_at_the_call(argument, wrong):
    with refused(argument, function="categorical"):
        categorical(**({"logits": mx.zeros((2, 5)), "uniform": mx.zeros(2)} | wrong))


def test_a_gpu_without_a_kernel_is_named():
    with pytest.raises(RuntimeError, match=r"^categorical: .*gpu"):
        categorical(mx.zeros((2, 5)), mx.zeros(2), stream=mx.gpu)
