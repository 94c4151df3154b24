"""`mx_quantized_matmul` replaces `mx.quantized_matmul`: the same arguments, accumulated in float32."""

import inspect

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import explain
from tiny_llm.quantize import mx_quantized_matmul

from ..support.cases import DTYPE_IDS, DTYPES, normal
from ..support.products.quantized import Packed, assert_product, packed
from ..support.refusal import case_id, refused
from ..support.tolerance import to_float64


@pytest.fixture(autouse=True)
def _on_the_cpu(on_the_cpu):
    """On the CPU, MLX computes in float32 too."""


@pytest.mark.parametrize("group_size", [32, 64, 128])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("leading", [(), (1,), (33,), (2, 3)], ids=str)
def test_in_float32_it_is_the_product_of_mlx(leading, bits, group_size):
    weight = normal(40, 384)
    x = normal(*leading, 384, seed=1)
    arrays = mx.quantize(weight, group_size, bits)
    ours = mx_quantized_matmul(x, *arrays, transpose=True, group_size=group_size, bits=bits)
    theirs = mx.quantized_matmul(x, *arrays, transpose=True, group_size=group_size, bits=bits)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    allowed = 1e-5 * np.abs(to_float64(theirs)).max()
    assert np.abs(to_float64(ours) - to_float64(theirs)).max() <= allowed


@pytest.mark.parametrize("group_size", [32, 64, 128])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("rows", [1, 5, 70])
def test_in_every_type_it_is_the_product_in_float64(rows, dtype, bits, group_size):
    weights, x = (
        packed(33, 384, bits=bits, group_size=group_size, dtype=dtype),
        normal(rows, 384, dtype=dtype),
    )
    out = mx_quantized_matmul(x, weights.words, weights.scales, weights.biases, True, group_size, bits)
    assert_product(out, x, weights)


def test_the_defaults_are_those_of_mlx():
    """Also the order: the packed matrix follows x; quantization groups of 64, 4 bits."""
    named = mx.quantized_matmul.__doc__.split("(", 1)[1].split(", *", 1)[0].replace(" /,", "")
    assert [name.split(":")[0].strip() for name in named.split(", ")] == list(
        inspect.signature(mx_quantized_matmul).parameters
    )
    x, arrays = normal(3, 128), mx.quantize(normal(8, 128))
    theirs = mx.quantized_matmul(x, *arrays)
    assert mx.allclose(mx_quantized_matmul(x, *arrays), theirs, rtol=1e-5, atol=1e-5)


def test_derivatives_are_those_of_mlx():
    x, arrays = normal(3, 128), mx.quantize(normal(8, 128))

    def gradient(multiply):
        return mx.grad(lambda x: multiply(x, *arrays).square().sum())(x)

    assert mx.allclose(gradient(mx_quantized_matmul), gradient(mx.quantized_matmul), rtol=1e-5, atol=1e-4)


def test_explain_supports_it():
    assert (
        explain(mx_quantized_matmul, normal(3, 128), *mx.quantize(normal(8, 128))).path
        == "cpu.quantized_matmul"
    )


def arguments(weights: Packed) -> dict:
    return {"x": normal(3, 128), "w": weights.words, "scales": weights.scales, "biases": weights.biases}


@pytest.mark.parametrize(
    ("argument", "value"),
    [("transpose", False), ("group_size", 16), ("bits", 3), ("bits", 6), ("mode", "mxfp4")],
)
def test_errors_for_unsupported_arguments_name_mlx(argument, value):
    with pytest.raises(
        NotImplementedError, match=rf"^mx_quantized_matmul: {argument}: got .*mx\.quantized_matmul"
    ):
        mx_quantized_matmul(**arguments(packed(8, 128)), **{argument: value})


@pytest.mark.parametrize(
    ("argument", "value", "error"),
    [
        ("x", mx.zeros((3, 100)), ValueError),
        ("x", mx.array(1.0), ValueError),
        ("x", mx.zeros((3, 128), dtype=mx.int32), ValueError),
        ("x", np.zeros((3, 128), np.float32), TypeError),
        ("w", mx.zeros((8, 15), dtype=mx.uint32), ValueError),
        ("w", mx.zeros((8, 16)), ValueError),
        ("scales", mx.zeros((8, 3)), ValueError),
        ("scales", mx.zeros((8, 2), dtype=mx.float16), ValueError),
        ("biases", None, TypeError),
        ("biases", mx.zeros((7, 2)), ValueError),
    ],
    ids=case_id,
)
def test_errors_name_the_argument_that_does_not_fit(argument, value, error):
    with refused(argument, error, function="mx_quantized_matmul"):
        mx_quantized_matmul(**arguments(packed(8, 128)) | {argument: value})
