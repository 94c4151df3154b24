"""silu(gate) * up equals its definition in float64, rounded once."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import basics
from tiny_llm.basics import silu
from tiny_llm.runtime.extension import load_extension

from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.refusal import case_id, refused
from ...support.rows import LAYOUTS, assert_rounded_once, graph_of, same_gradients, same_when_mapped
from ...support.tolerance import to_float64

silu_multiply = load_extension().silu_multiply


def definition(gate: mx.array, up: mx.array) -> np.ndarray:
    wide = to_float64(gate)
    return wide / (1 + np.exp(-wide)) * to_float64(up)


def plain(gate, up):
    wide = gate.astype(mx.float32)
    return (silu(wide) * up.astype(mx.float32)).astype(gate.dtype)


def inputs(*shape, dtype=mx.float32):
    return (3 * normal(*shape, dtype=mx.float32)).astype(dtype), normal(*shape, dtype=dtype, seed=1)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("size", [1, 7, 8, 9, 31, 33, 64, 896, 4095, 4096, 4097, 200_001])
def test_each_size_and_dtype(size, dtype):
    """The longest ones run on several threads."""
    gate, up = inputs(size, dtype=dtype)
    assert_rounded_once(silu_multiply(gate, up), definition(gate, up), dtype)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3, 16)], ids=str)
def test_each_shape(shape):
    gate, up = inputs(*shape)
    assert_rounded_once(silu_multiply(gate, up), definition(gate, up), mx.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_large_and_special_values(dtype):
    """exp overflows for large negative numbers, and the result is still 0."""
    gate = mx.array([-65504, -1000, -100, -20, 0, 20, 100, 1000, 65504, mx.nan, mx.inf], dtype=dtype)
    result = silu_multiply(gate, mx.ones(11, dtype=dtype))
    assert_rounded_once(result[:9], np.maximum(to_float64(gate[:9]), 0), dtype)
    assert mx.isnan(result[9])
    assert result[10].item() == mx.inf


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(5, 33), (2, 3, 33), (300, 700)], ids=str)
def test_layouts(shape, layout, dtype):
    gate, up = inputs(*shape, dtype=dtype)
    expected = silu_multiply(gate, up)
    assert mx.array_equal(silu_multiply(layout(gate), layout(up)), expected)
    assert mx.array_equal(silu_multiply(gate, layout(up)), expected)


def test_two_halves_of_one_array():
    """As from a product with both matrices at once."""
    both = normal(4, 140)
    gate, up = both[:, :70], both[:, 70:]
    assert_rounded_once(silu_multiply(gate, up), definition(gate, up), mx.float32)


def test_arrays_in_use_are_unchanged():
    gate, up = inputs(3, 50)
    held = to_float64(gate), to_float64(up)
    expected = silu_multiply(gate, up)
    mx.eval(expected)
    assert np.array_equal(to_float64(gate), held[0])
    assert np.array_equal(to_float64(up), held[1])
    assert mx.array_equal(silu_multiply(gate + 0, up + 0), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_gradients_equal_those_of_the_graph(dtype):
    same_gradients(silu_multiply, plain, inputs(4, 40, dtype=dtype))


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 1), (2, 0)], ids=str)
def test_vmap(axes):
    same_when_mapped(silu_multiply, inputs(4, 24), axes)


def test_shapeless_compile():
    compiled = mx.compile(silu_multiply, shapeless=True)
    for rows in (1, 4):
        gate, up = inputs(rows, 24)
        assert mx.array_equal(compiled(gate, up), silu_multiply(gate, up))


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("gate", {"gate": mx.zeros(8, dtype=mx.int32)}),
        ("up", {"up": mx.zeros(8, dtype=mx.float16)}),
        ("up", {"up": mx.zeros(1)}),
        ("up", {"up": mx.zeros((1, 8))}),
    ],
    ids=case_id,
)
def test_refused_at_the_call(argument, wrong):
    with refused(argument, function="silu_multiply"):
        silu_multiply(**({"gate": mx.zeros(8), "up": mx.zeros(8)} | wrong))


def test_a_gpu_without_a_kernel_is_named():
    with pytest.raises(RuntimeError, match=r"^silu_multiply: .*gpu"):
        silu_multiply(mx.zeros(8), mx.zeros(8), stream=mx.gpu)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_the_layer_function_and_its_readable_form_agree(dtype):
    gate, up = inputs(3, 70, dtype=dtype)
    assert mx.array_equal(basics.silu_multiply(gate, up), silu_multiply(gate, up))
    with graph_of("tiny_llm.basics"):
        readable = basics.silu_multiply(gate, up)
    bound = {mx.float32: 1e-5, mx.float16: 4e-3, mx.bfloat16: 1.6e-2}[dtype]  # it rounds twice
    assert mx.allclose(silu_multiply(gate, up), readable, rtol=bound, atol=1e-3)
