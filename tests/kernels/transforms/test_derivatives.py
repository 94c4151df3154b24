"""mx.jvp, second derivatives and mx.vmap of a gradient: equal to MLX's own operations, or refused by name."""

from collections.abc import Callable
from typing import NamedTuple

import mlx.core as mx
import pytest

from tiny_llm.attention import attention_reference, flash_attention
from tiny_llm.basics import linear, silu, silu_multiply
from tiny_llm.layer_norm import RMSNorm
from tiny_llm.positional_encoding import RoPE
from tiny_llm.quantize import mx_quantized_matmul

from ...support.cases import normal

pytestmark = pytest.mark.usefixtures("on_the_cpu")


class Pair(NamedTuple):
    """An operation of one array, the same in MLX's operations, and an array."""

    ours: Callable[[mx.array], mx.array]
    plain: Callable[[mx.array], mx.array]
    x: mx.array


W = normal(7, 64, seed=1)
PACKED = mx.quantize(normal(16, 64, seed=2))
KEY, VALUE = normal(2, 2, 9, 32, seed=3), normal(2, 2, 9, 32, seed=4)
ROPE = RoPE(32, 20)
WEIGHT = normal(64, seed=5)


def rms_norm(x: mx.array) -> mx.array:
    return x * mx.rsqrt(mx.mean(x * x, axis=-1, keepdims=True) + 1e-5) * WEIGHT


def rope(x: mx.array) -> mx.array:
    real, imaginary = mx.split(x, 2, axis=-1)
    angle = mx.arange(x.shape[1])[:, None, None] * 10000 ** (-mx.arange(16) / 16)
    cos, sin = mx.cos(angle), mx.sin(angle)
    return mx.concatenate([real * cos - imaginary * sin, imaginary * cos + real * sin], axis=-1)


PAIRS = {
    "linear": Pair(lambda x: linear(x, W), lambda x: x @ W.T, normal(3, 64)),
    "linear, along the weights": Pair(lambda w: linear(W, w), lambda w: W @ w.T, normal(5, 64)),
    "quantized_matmul": Pair(
        lambda x: mx_quantized_matmul(x, *PACKED), lambda x: x @ mx.dequantize(*PACKED).T, normal(3, 64)
    ),
    "rms_norm": Pair(RMSNorm(64, WEIGHT), rms_norm, normal(3, 64)),
    "rope": Pair(ROPE, rope, normal(2, 5, 3, 32)),
    "silu_multiply": Pair(lambda x: silu_multiply(x, x), lambda x: silu(x) * x, normal(3, 64)),
    "attention_reference": Pair(
        lambda q: attention_reference(q, KEY, VALUE, causal=True),
        lambda q: mx.fast.scaled_dot_product_attention(q, KEY, VALUE, scale=32**-0.5, mask="causal"),
        normal(2, 4, 5, 32),
    ),
}
each_pair = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)


def loss(function: Callable[[mx.array], mx.array]) -> Callable[[mx.array], mx.array]:
    return lambda x: mx.sum(function(x) ** 3)


def assert_near(ours: mx.array, plain: mx.array) -> None:
    assert ours.shape == plain.shape
    assert mx.abs(ours - plain).max().item() <= 1e-4 * mx.abs(plain).max().item() > 0


@each_pair
def test_jvp(pair):
    tangent = normal(*pair.x.shape, seed=9)
    ours, plain = (mx.jvp(function, [pair.x], [tangent]) for function in (pair.ours, pair.plain))
    for mine, expected in zip(ours, plain, strict=True):
        assert_near(mine[0], expected[0])


@each_pair
def test_gradient_of_a_gradient(pair):
    def second(function):
        return mx.grad(lambda x: mx.sum(mx.grad(loss(function))(x) ** 2))(pair.x)

    assert_near(second(pair.ours), second(pair.plain))


@each_pair
def test_vmap_of_a_gradient(pair):
    several = mx.stack([pair.x, 2 * pair.x, -pair.x])
    mapped = mx.vmap(mx.grad(loss(pair.ours)))(several)
    assert_near(mapped, mx.stack([mx.grad(loss(pair.plain))(x) for x in several]))


def attend(query: mx.array) -> mx.array:
    return flash_attention(query, KEY, VALUE, causal=True)


def test_the_gradient_of_fused_attention_can_be_mapped():
    several = normal(3, 2, 4, 5, 32)
    mapped = mx.vmap(mx.grad(loss(attend)))(several)
    plain = loss(lambda query: attention_reference(query, KEY, VALUE, causal=True))
    assert_near(mapped, mx.stack([mx.grad(plain)(query) for query in several]))


def test_fused_attention_refuses_the_derivatives_that_its_help_excludes():
    query = normal(2, 4, 5, 32)
    refused = {
        "jvp": lambda: mx.jvp(attend, [query], [query]),
        "second": lambda: mx.grad(lambda x: mx.sum(mx.grad(loss(attend))(x)))(query),
        "jvp of the gradient": lambda: mx.jvp(mx.grad(loss(attend)), [query], [query]),
    }
    for derivative in refused.values():
        with pytest.raises(NotImplementedError, match=r"flash_attention.*attention_reference"):
            mx.eval(derivative())
    said = " ".join(flash_attention.__doc__.split())
    assert "mx.jvp, and derivatives of the gradient raise NotImplementedError" in said
