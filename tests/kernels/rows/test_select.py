"""argmax, top_k and logsumexp of long rows agree with sorting and float64, ties and NaN included."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_llm.runtime.extension import load_extension

from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.covering import pairwise
from ...support.refusal import refused
from ...support.rows import LAYOUTS, same_gradients, same_when_mapped
from ...support.tolerance import to_float64

extension = load_extension()
argmax, top_k, logsumexp = extension.argmax, extension.top_k, extension.logsumexp

SIZES = [1, 7, 8, 9, 31, 33, 63, 64, 65, 511, 512, 513, 1025, 5000]


def sorted_indices(row: np.ndarray) -> np.ndarray:
    """By definition: descending, equal ones by index, NaN last."""
    return np.array(sorted(range(len(row)), key=lambda i: (np.isnan(row[i]), -row[i], i)))


def check_top_k(x: mx.array, k: int) -> None:
    numbers, indices = top_k(x, k)
    assert numbers.dtype == x.dtype
    assert indices.dtype == mx.uint32
    assert numbers.shape == indices.shape == (*x.shape[:-1], k)
    rows = to_float64(x).reshape(-1, x.shape[-1])
    for row, got in zip(rows, np.array(indices).reshape(-1, k), strict=True):
        assert np.array_equal(got, sorted_indices(row)[:k])
    chosen = mx.take_along_axis(x, indices, axis=-1)
    assert mx.array_equal(numbers, chosen, equal_nan=True)


def with_ties(*shape: int, dtype: mx.Dtype) -> mx.array:
    """A few different numbers, so that many elements are equal to the largest."""
    return mx.round(normal(*shape) * 1.5).astype(dtype)


@pairwise({"size": SIZES, "make": [normal, with_ties], "dtype": DTYPES})
def test_argmax_agrees_with_mlx(size, make, dtype):
    x = make(4, size, dtype=dtype)
    result = argmax(x)
    assert result.dtype == mx.uint32
    assert mx.array_equal(result, mx.argmax(x, axis=-1))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_argmax_finds_the_largest_wherever_it_is(dtype):
    size = 1100
    x = mx.where(mx.arange(size) == mx.arange(size)[:, None], 1, -mx.inf).astype(dtype)
    assert mx.array_equal(argmax(x), mx.arange(size))


NAN, INF = float("nan"), float("inf")


@pairwise({"make": [normal, with_ties], "rows": [1, 3], "dtype": DTYPES, "number": [0, NAN, INF]})
def test_argmax_of_a_row_that_threads_share(make, rows, dtype, number):
    """The first of the largest, or the first NaN, whichever thread finds it."""
    x = make(rows, 20_000, dtype=dtype)
    x[:, 9_000] = x[:, 15_000] = number
    assert mx.array_equal(argmax(x), mx.argmax(x, axis=-1))


SPECIAL = st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 2.5, 3e38, -3e38, 1e-45])


@settings(max_examples=300)
@given(st.lists(SPECIAL, min_size=1, max_size=40), st.integers(0, 600), st.data())
def test_special_values_and_ties(numbers, padding, data):
    """For argmax, NaN is larger than any number; for top_k it comes after -inf."""
    with mx.stream(mx.cpu):
        x = mx.concatenate([mx.array(numbers), mx.full(padding, -INF)])
        assert argmax(x).item() == mx.argmax(x).item()
        check_top_k(x[None], data.draw(st.integers(1, x.size)))


@pairwise({"size": SIZES, "make": [normal, with_ties], "dtype": DTYPES})
def test_top_k_is_the_start_of_the_sorted_row(size, make, dtype):
    x = make(2, size, dtype=dtype)
    for k in {1, min(size, 2), min(size, 40), max(1, size - 1), size}:
        check_top_k(x, k)


@pytest.mark.parametrize("order", ["rising", "falling", "equal", "peak"])
def test_orders_with_many_candidates(order):
    """In a rising row every element is a candidate."""
    rising = mx.arange(4000).astype(mx.float32)
    x = {
        "rising": rising,
        "falling": -rising,
        "equal": mx.zeros(4000),
        "peak": -mx.abs(rising - 2000),
    }[order]
    for k in (1, 5, 300, 3999):
        check_top_k(x[None], k)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("size", SIZES)
def test_logsumexp(size, dtype):
    x = (4 * normal(3, size)).astype(dtype)
    wide = to_float64(x)
    expected = np.log(np.exp(wide).sum(axis=-1))
    result = logsumexp(x)
    assert result.dtype == mx.float32
    np.testing.assert_allclose(to_float64(result), expected, rtol=1e-5, atol=1e-6)


def test_logsumexp_of_large_and_special_values():
    rows = [[1000, 1000], [-1000, -1001], [-INF, 3], [-INF, -INF], [INF, 3], [NAN, 3]]
    found = logsumexp(mx.array(rows))
    expected = [1000 + np.log(2), -1000 + np.log1p(np.exp(-1)), 3, -INF, INF, NAN]
    np.testing.assert_allclose(to_float64(found), expected, rtol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_layouts(layout, dtype):
    x = normal(3, 2, 130, dtype=dtype)
    assert mx.array_equal(argmax(layout(x)), argmax(x))
    assert mx.array_equal(logsumexp(layout(x)), logsumexp(x))
    check_top_k(layout(x), 9)


def test_shapes_and_many_rows():
    assert argmax(normal(17)).shape == ()
    assert logsumexp(normal(17)).shape == ()
    check_top_k(normal(17), 3)
    many = normal(40, 20_000)  # on several threads
    assert mx.array_equal(argmax(many), mx.argmax(many, axis=-1))
    assert mx.array_equal(top_k(many, 1)[1].squeeze(-1), argmax(many))
    assert mx.allclose(logsumexp(many), mx.logsumexp(many, axis=-1), rtol=1e-5)
    none = mx.zeros((0, 5))
    assert argmax(none).shape == logsumexp(none).shape == (0,)
    assert [x.shape for x in top_k(none, 2)] == [(0, 2), (0, 2)]


def test_gradients():
    x = normal(3, 40)
    same_gradients(lambda x: top_k(x, 5)[0], lambda x: -mx.sort(-x, axis=-1)[..., :5], [x])
    same_gradients(logsumexp, lambda x: mx.logsumexp(x, axis=-1), [x])


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(
    "function", [argmax, lambda x: top_k(x, 3), logsumexp], ids=["argmax", "top_k", "lse"]
)
def test_vmap(function, axis):
    same_when_mapped(function, [normal(4, 30)], (axis,))


def test_compile():
    functions = [argmax, lambda x: top_k(x, 3)[1], lambda x: top_k(x, 4)[1], logsumexp]
    compiled = mx.compile(lambda x: tuple(function(x) for function in functions), shapeless=True)
    for rows in (1, 4):
        x = normal(rows, 30)
        for got, function in zip(compiled(x), functions, strict=True):
            assert mx.array_equal(got, function(x))


@pytest.mark.parametrize("x", [mx.array(1.0), mx.zeros((3, 0)), mx.zeros(3, dtype=mx.int32)], ids=str)
def test_anything_but_rows_of_numbers_is_refused(x):
    for name, call in {"argmax": argmax, "top_k": lambda x: top_k(x, 1), "logsumexp": logsumexp}.items():
        with refused("x", function=name):
            call(x)


@pytest.mark.parametrize("k", [0, -1, 6])
def test_k_out_of_range_is_refused(k):
    with refused("k", function="top_k"):
        top_k(mx.zeros((2, 5)), k)


def test_a_gpu_without_a_kernel_is_named():
    calls = {"argmax": argmax, "top_k": lambda x, **stream: top_k(x, 1, **stream), "logsumexp": logsumexp}
    for name, call in calls.items():
        with pytest.raises(RuntimeError, match=rf"^{name}: .*gpu"):
            call(mx.zeros(5), stream=mx.gpu)
