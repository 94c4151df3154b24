"""The norm of a row equals its definition in float64, rounded once."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.layer_norm import RMSNorm
from tiny_llm.runtime.extension import load_extension

from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.covering import pairwise
from ...support.refusal import case_id, refused
from ...support.rows import LAYOUTS, assert_rounded_once, graph_of, same_gradients, same_when_mapped
from ...support.tolerance import to_float64

rms_norm = load_extension().rms_norm
EPS = 1e-5


def definition(x: mx.array, weight: mx.array, eps: float = EPS) -> np.ndarray:
    wide = to_float64(x)
    return wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + eps) * to_float64(weight)


def check(x, weight, eps=EPS):
    result = rms_norm(x, weight, eps)
    assert_rounded_once(result, definition(x, weight, eps), x.dtype)
    return result


def plain(x, weight):
    """The layer as MLX operations."""
    with graph_of("tiny_llm.layer_norm"):
        return RMSNorm(x.shape[-1], weight, EPS)(x)


@pairwise({"size": [1, 7, 8, 9, 31, 33, 64, 65, 128, 896], "dtype": DTYPES, "weight_dtype": DTYPES})
def test_each_size_and_dtype(size, dtype, weight_dtype):
    check(normal(3, size, dtype=dtype), normal(size, dtype=weight_dtype, seed=1))


@pytest.mark.parametrize("shape", [(16,), (1, 16), (2, 3, 16), (5, 1, 2, 16), (700, 896)], ids=str)
def test_each_shape(shape):
    """The last one runs on several threads."""
    check(normal(*shape), normal(shape[-1], seed=1))


@pytest.mark.parametrize("shape", [(0,), (0, 8), (3, 0), (2, 0, 8)], ids=str)
def test_sizes_of_zero(shape):
    x = mx.zeros(shape)
    assert rms_norm(x, mx.zeros(shape[-1]), EPS).shape == shape


def test_arrays_in_use_are_unchanged():
    """The memory of unused arrays may be reused."""
    x, weight = normal(4, 70), normal(70, seed=2)
    held = to_float64(x)
    result = rms_norm(x, weight, EPS)
    mx.eval(result)
    assert np.array_equal(to_float64(x), held)
    assert mx.array_equal(rms_norm(x + 0, weight, EPS), result)


def test_half_precision_calculates_in_float32():
    x = mx.array([1000] + 110 * [1e-4], dtype=mx.float16)
    check(x, mx.array([0.1] + 110 * [1e6]))


@pytest.mark.parametrize("value", [mx.nan, mx.inf, -mx.inf, 3e38])
def test_special_values_stay_in_their_row(value):
    x, weight = normal(6, 33), normal(33, seed=1)
    x[3, 32] = value
    result, expected = rms_norm(x, weight, EPS), plain(x, weight)
    others = mx.array([0, 1, 2, 4, 5])
    assert mx.allclose(result[others], expected[others], rtol=1e-5, atol=1e-6)
    assert mx.allclose(result[3], expected[3], equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(5, 33), (2, 3, 33), (700, 896)], ids=str)
def test_layouts(shape, layout, dtype):
    x, weight = normal(*shape, dtype=dtype), normal(shape[-1], seed=2)
    assert mx.array_equal(rms_norm(layout(x), layout(weight), EPS), rms_norm(x, weight, EPS))


def test_broadcast_rows():
    row, weight = normal(1, 40), normal(40, seed=1)
    check(mx.broadcast_to(row, (6, 40)), weight)
    check(normal(6, 40), mx.broadcast_to(mx.array(0.5), (40,)))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_gradients_equal_those_of_the_graph(dtype):
    inputs = [normal(3, 40, dtype=dtype), normal(40, seed=2)]
    same_gradients(lambda x, w: rms_norm(x, w, EPS), plain, inputs)


def test_second_derivatives():
    x, weight = normal(4, 16), normal(16, seed=1)

    def curvature(function):
        slope = mx.grad(lambda x: mx.sum(function(x, weight) ** 2))
        return mx.grad(lambda x: mx.sum(slope(x) * normal(4, 16, seed=2)))(x)

    assert mx.allclose(curvature(lambda x, w: rms_norm(x, w, EPS)), curvature(plain), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axes", [(0, None), (1, None), (None, 0), (0, 0), (2, 1)], ids=str)
def test_vmap(axes):
    same_when_mapped(lambda x, w: rms_norm(x, w, EPS), [normal(2, 5, 24), normal(24, seed=1)], axes)


def test_compile_and_shapeless_compile():
    weight = normal(24)
    compiled = mx.compile(lambda x: rms_norm(x + 1, weight, EPS), shapeless=True)
    for rows in (1, 4, 7):
        x = normal(rows, 24, seed=1)
        assert mx.array_equal(compiled(x), rms_norm(x + 1, weight, EPS))


def test_calls_with_another_eps_are_not_merged():
    x, weight = normal(3, 24) / 100, normal(24, seed=1)
    one, two = mx.compile(lambda x: (rms_norm(x, weight, 1e-6), rms_norm(x, weight, 1.0)))(x)
    assert mx.array_equal(one, rms_norm(x, weight, 1e-6))
    assert mx.array_equal(two, rms_norm(x, weight, 1.0))


FITTING = {"x": mx.zeros((3, 8)), "weight": mx.zeros(8), "eps": EPS}


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("x", {"x": mx.array(1.0)}),
        ("x", {"x": mx.zeros((3, 8), dtype=mx.int32)}),
        ("weight", {"weight": mx.zeros(8, dtype=mx.int32)}),
        ("weight", {"weight": mx.zeros(7)}),
        ("weight", {"weight": mx.zeros((1, 8))}),
        ("weight", {"weight": mx.array(1.0)}),
        ("eps", {"eps": -1e-6}),
        ("eps", {"eps": float("nan")}),
        ("eps", {"eps": float("inf")}),
    ],
    ids=case_id,
)
def test_refused_at_the_call(argument, wrong):
    with refused(argument, function="rms_norm"):
        rms_norm(**(FITTING | wrong))


def test_a_gpu_without_a_kernel_is_named():
    with pytest.raises(RuntimeError, match=r"^rms_norm: .*gpu"):
        rms_norm(**FITTING, stream=mx.gpu)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_the_layer_and_its_readable_form_agree(dtype):
    x, weight = normal(3, 70, dtype=dtype), normal(70, seed=2)
    fast = RMSNorm(70, weight, EPS)(x)
    assert mx.array_equal(fast, rms_norm(x, weight, EPS))
    assert_rounded_once(fast, to_float64(plain(x, weight)), dtype)
