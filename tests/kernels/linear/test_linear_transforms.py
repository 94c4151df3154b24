"""Gradients, vmap and compile of the dense product."""

import mlx.core as mx
import pytest

from tiny_llm.runtime.extension import load_extension

from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.products.linear import assert_near, expected, inputs
from ...support.tolerance import to_float64

linear = load_extension().linear


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("M", [3, 37])
def test_gradients_of_everything(M, dtype):
    """dx = dy w, dw = dy^T x and db = sum of dy, in float64."""
    x, w, bias = inputs(M, 41, 130, dtype)
    dy = normal(M, 41, dtype=dtype, seed=3)
    loss = lambda x, w, bias: mx.sum(linear(x, w, bias) * dy)  # noqa: E731
    gradients = mx.grad(loss, argnums=(0, 1, 2))(x, w, bias)
    wide_dy = to_float64(dy)
    wanted = (wide_dy @ to_float64(w), wide_dy.T @ to_float64(x), wide_dy.sum(axis=0))
    for gradient, want in zip(gradients, wanted, strict=True):
        assert gradient.dtype == dtype
        assert_near(gradient, want)


@pytest.mark.parametrize("shape", [(130,), (2, 3, 130), (2, 0, 130)], ids=str)
def test_gradients_with_any_leading_axes(shape):
    """Equal to those of the same rows as a matrix."""
    _, w, bias = inputs(1, 41, 130)
    x = normal(*shape)
    loss = lambda x, w, bias: mx.sum(linear(x, w, bias) ** 2)  # noqa: E731
    gradients = mx.grad(loss, argnums=(0, 1, 2))(x, w, bias)
    of_rows = mx.grad(loss, argnums=(0, 1, 2))(x.reshape(-1, 130), w, bias)
    for gradient, want, like in zip(gradients, of_rows, (x, w, bias), strict=True):
        assert gradient.shape == like.shape
        assert mx.array_equal(gradient, want.reshape(like.shape))


def test_second_derivatives():
    """A quadratic in each of x and w: its mixed derivative needs the gradient of a gradient."""
    x, w, _ = inputs(9, 5, 7)

    def gradient_norm(multiply):
        loss = lambda x, w: mx.sum(multiply(x, w) ** 2)  # noqa: E731
        return lambda w: mx.sum(mx.grad(loss)(x, w) ** 2)

    ours = mx.grad(gradient_norm(linear))(w)
    theirs = mx.grad(gradient_norm(lambda x, w: x @ w.T))(w)
    assert_near(ours, to_float64(theirs))


def test_jvp_is_linear_in_each_argument():
    x, w, bias = inputs(9, 40, 128)
    dx, dw, db = normal(9, 128, seed=4), normal(40, 128, seed=5), normal(40, seed=6)
    _, (derivative,) = mx.jvp(linear, [x, w, bias], [dx, dw, db])
    assert_near(derivative, expected(dx, w) + expected(x, dw) + to_float64(db))
    _, (derivative,) = mx.jvp(lambda x: linear(x, w, bias), [x], [dx])
    assert mx.array_equal(derivative, linear(dx, w))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_vmap_over_rows(axis):
    x, w, bias = normal(3, 16, 128), normal(40, 128, seed=1), normal(40, seed=2)
    mapped = mx.vmap(lambda x: linear(x, w, bias), in_axes=axis)(mx.moveaxis(x, 0, axis))
    assert mx.array_equal(mapped, mx.stack([linear(x, w, bias) for x in x]))


def test_vmap_and_jvp_with_any_leading_axes():
    x, w, bias = normal(2, 3, 16, 128), normal(40, 128, seed=1), normal(40, seed=2)
    mapped = mx.vmap(linear, in_axes=(2, None, None))(mx.moveaxis(x, 0, 2), w, bias)
    assert mx.array_equal(mapped, linear(x, w, bias))
    mapped = mx.vmap(linear, in_axes=(1, 0, None))(x, mx.stack([w, 2 * w, -w]), bias)
    assert mx.array_equal(mapped[1], linear(x[:, 1], 2 * w, bias))
    empty = mx.vmap(linear, in_axes=(None, 0, None))(x, mx.zeros((0, 40, 128)), bias)
    assert empty.shape == (0, 2, 3, 16, 40)
    _, (derivative,) = mx.jvp(lambda bias: linear(x, w, bias), [bias], [bias])
    assert mx.array_equal(derivative, mx.broadcast_to(bias, (2, 3, 16, 40)))


@pytest.mark.parametrize("axes", [(None, 0, None), (None, 1, 0), (0, 0, 1), (None, None, 0)], ids=str)
def test_vmap_over_weights(axes):
    single = inputs(9, 40, 128)
    stacks = [mx.stack([x, 2 * x, -x]) for x in single]
    given = [
        x if axis is None else mx.moveaxis(stack, 0, axis)
        for x, stack, axis in zip(single, stacks, axes, strict=True)
    ]
    mapped = mx.vmap(linear, in_axes=axes)(*given)
    for n in range(3):
        own = [x if a is None else s[n] for x, s, a in zip(single, stacks, axes, strict=True)]
        assert mx.array_equal(mapped[n], linear(*own))


@pytest.mark.parametrize("axes", [(None, 0, None), (0, 1, None), (2, None, 0), (0, None, None)], ids=str)
def test_vmap_over_nothing(axes):
    shapes = [9, 128], [40, 128], [40]
    for shape, axis in zip(shapes, axes, strict=True):
        if axis is not None:
            shape.insert(axis, 0)
    mapped = mx.vmap(linear, in_axes=axes)(*(mx.zeros(shape, mx.bfloat16) for shape in shapes))
    assert mapped.shape == (0, 9, 40)
    assert mapped.dtype == mx.bfloat16


def test_compile_and_shapeless_compile():
    _, w, bias = inputs(1, 40, 128)
    compiled = mx.compile(lambda x: linear(x, w, bias), shapeless=True)
    for M in (1, 9, 70):
        x = normal(M, 128)
        assert mx.array_equal(compiled(x), linear(x, w, bias))
