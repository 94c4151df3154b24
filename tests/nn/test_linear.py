"""The projections of the layers run on the kernels of `tiny_llm.linear`, forward and backward."""

from __future__ import annotations

import io

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from tiny_llm.nn import FusedFlashAttention

from ..support.cases import DTYPE_IDS, DTYPES, normal
from ..support.tolerance import FLOOR, GRADIENT_FLOOR, assert_close, to_float64
from .layers import LAYERS, TILED, make, tokens


def operations(*arrays: mx.array) -> str:
    """The graph of unevaluated arrays, with the names of its operations."""
    text = io.StringIO()
    mx.export_to_dot(text, *arrays)
    return text.getvalue()


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_no_projection_is_a_product_of_mlx(layer, dtype):
    made, x = make(layer), tokens().astype(dtype)
    made.set_dtype(dtype)
    out = operations(made(x)[0])
    gradient = nn.value_and_grad(made, lambda x: made(x)[0].sum())(x)[1]
    back = operations(*(array for _, array in nn.utils.tree_flatten(gradient)))
    assert "Linear" in out
    assert "Linear" in back
    if layer in TILED:
        assert "Matmul" not in out + back
        assert "AddMM" not in out + back


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("bias", [True, False])
def test_a_projection_and_its_gradients_are_exact(bias, dtype):
    layer = FusedFlashAttention(48, 4, bias=bias)
    layer.set_dtype(dtype)
    projection, x, dy = (
        layer.qkv_proj,
        normal(2, 33, 48, dtype=dtype),
        normal(2, 33, 144, dtype=dtype, seed=1),
    )
    names = ["weight", "bias"] if bias else ["weight"]

    def run(x, *parameters):
        projection.update(dict(zip(names, parameters, strict=True)))
        return projection(x)

    parameters = [projection[name] for name in names]
    (y,), gradients = mx.vjp(run, [x, *parameters], [dy])
    x64, dy64, w64 = (to_float64(array) for array in (x, dy, parameters[0]))
    expected = x64 @ w64.T + (to_float64(parameters[1]) if bias else 0)
    rows = dy64.reshape(-1, 144)
    want = [dy64 @ w64, rows.T @ x64.reshape(-1, 48), rows.sum(0)]
    assert_close(y, expected, floor=FLOOR[dtype])
    for got, exact in zip(gradients, want, strict=False):
        scale = np.abs(exact).max()
        assert_close(got.astype(mx.float32) / scale, exact / scale, floor=GRADIENT_FLOOR[dtype])


def test_parameters_of_another_type_are_promoted_as_in_mlx():
    layer = FusedFlashAttention(32, 4)
    assert layer(tokens().astype(mx.bfloat16))[0].dtype == mx.float32
