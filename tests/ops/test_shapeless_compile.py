"""A layer compiled with shapeless=True uses the shapes of each call, none of the first."""

import mlx.core as mx
import pytest

from tiny_llm.basics import linear
from tiny_llm.quantize import QuantizedWeights, quantized_linear, quantized_matmul

from ..support.cases import normal
from ..support.products.quantized import packed

# MLX's own packed product, which a GPU runs, allows neither shapeless=True nor vmap.
pytestmark = pytest.mark.usefixtures("on_the_cpu")

SHAPES = [
    (2, 6, 64),
    (4, 3, 64),
    (5, 7, 64),
    (1, 1, 64),
]  # the second has the rows of the first, in other axes
WEIGHTS = packed(8, 64, group_size=32)
BIAS = normal(8, seed=1)
LAYERS = {
    "linear": lambda x: linear(x, normal(8, 64, seed=2)),
    "linear with a bias": lambda x: linear(x, normal(8, 64, seed=2), BIAS),
    "quantized_matmul": lambda x: quantized_matmul(*WEIGHTS[:4], x, WEIGHTS.words, True),
    "quantized_linear": lambda x: quantized_linear(x, QuantizedWeights(*WEIGHTS), BIAS),
}


@pytest.mark.parametrize("axes", [1, 2, 3], ids="{} axes".format)
@pytest.mark.parametrize("name", LAYERS)
def test_the_shapes_of_each_call_are_followed(name, axes):
    compiled = mx.compile(LAYERS[name], shapeless=True)
    for shape in SHAPES:
        x = normal(*shape[-axes:])
        out = compiled(x)
        assert out.shape == (*x.shape[:-1], 8)
        assert mx.array_equal(out, LAYERS[name](x))


@pytest.mark.parametrize("axes", [1, 2, 3], ids="{} axes".format)
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_follow_the_shapes_of_each_call(name, axes):
    gradient = mx.grad(lambda x: mx.sum(LAYERS[name](x) ** 2))
    compiled = mx.compile(gradient, shapeless=True)
    for shape in SHAPES:
        x = normal(*shape[-axes:])
        assert mx.array_equal(compiled(x), gradient(x))


@pytest.mark.parametrize("name", LAYERS)
def test_mapped_layers_follow_the_shapes_of_each_call(name):
    compiled = mx.compile(mx.vmap(LAYERS[name], in_axes=1), shapeless=True)
    for shape in SHAPES:
        x = normal(*shape)
        assert mx.array_equal(compiled(x), LAYERS[name](mx.swapaxes(x, 0, 1)))


def test_the_derivative_with_respect_to_a_bias_follows_them():
    weights = normal(8, 64, seed=2)

    def along_the_bias(x):
        return mx.jvp(lambda bias: linear(x, weights, bias), [BIAS], [BIAS])[1][0]

    compiled = mx.compile(along_the_bias, shapeless=True)
    for shape in SHAPES:
        x = normal(*shape)
        assert compiled(x).shape == (*shape[:-1], 8)
        assert mx.array_equal(compiled(x), mx.broadcast_to(BIAS, (*shape[:-1], 8)))
