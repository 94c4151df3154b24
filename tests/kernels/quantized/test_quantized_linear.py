"""Linear layers in one pass are bitwise equal to their products and operations one by one."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.runtime.extension import load_extension

from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.products.quantized import assert_product, packed
from ...support.tolerance import to_float64

native = load_extension()
ROWS = [1, 2, 5, 9, 40, 300]
SINGLE_THREAD_AND_MORE = [(33, 192), (700, 1152)]


def triple(weights):
    return weights.words, weights.scales, weights.biases


def product(x, weights):
    rows = native.quantized_matmul(*weights[:4], mx.flatten(x, 0, -2), weights.words, True)
    return rows.reshape(*x.shape[:-1], len(weights.words))


def linear(x, matrices, **options):
    one = matrices[0]
    return native.quantized_linear(x, [triple(w) for w in matrices], one.group_size, one.bits, **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("size", SINGLE_THREAD_AND_MORE, ids=str)
@pytest.mark.parametrize("M", ROWS)
def test_several_matrices_with_biases(M, size, dtype):
    N, K = size
    matrices = [packed(n, K, dtype=dtype, seed=n) for n in (N, 7, 2 * N)]
    biases = [normal(len(w.words), dtype=dtype) for w in matrices]
    x = normal(M, K, dtype=dtype)
    for y, weights, bias in zip(linear(x, matrices, bias=biases), matrices, biases, strict=True):
        assert mx.array_equal(y, product(x, weights) + bias)
    for y, weights in zip(linear(x, matrices), matrices, strict=True):
        assert_product(y, x, weights)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("size", SINGLE_THREAD_AND_MORE, ids=str)
@pytest.mark.parametrize("M", ROWS)
def test_a_gate(M, size, dtype):
    gate, up = (packed(*size, dtype=dtype, seed=seed) for seed in (1, 2))
    x = normal(M, size[1], dtype=dtype) * 0.1
    (y,) = linear(x, [gate, up], gated=True)
    assert mx.array_equal(y, native.silu_multiply(product(x, gate), product(x, up)))
    a, b = (to_float64(x) @ w.dense().T for w in (gate, up))
    expected = a / (1 + np.exp(-a)) * b
    allowed = {mx.float32: 1e-5, mx.float16: 3e-3, mx.bfloat16: 2e-2}[dtype] * np.abs(expected).max()
    assert np.abs(to_float64(y) - expected).max() <= allowed


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("M", ROWS)
def test_a_residual(M, dtype):
    weights, x = packed(70, 576, dtype=dtype), normal(M, 576, dtype=dtype)
    residual, bias = normal(M, 70, dtype=dtype, seed=3), normal(70, dtype=dtype)
    (y,) = linear(x, [weights], residual=residual, bias=[bias])
    assert mx.array_equal(y, residual + (product(x, weights) + bias))


@pytest.mark.parametrize("weight_dtype", [mx.float32, None], ids=["float32 weight", "weight like x"])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("M", ROWS)
def test_a_norm_before_the_product(M, dtype, weight_dtype):
    weights, x = packed(70, 576, dtype=dtype), normal(M, 576, dtype=dtype) * 3
    norm = normal(576, dtype=weight_dtype or dtype, seed=5)
    residual = normal(M, 70, dtype=dtype, seed=3)
    normalised = native.rms_norm(x, norm, 1e-3)
    (y,) = linear(x, [weights], norm=(norm, 1e-3), residual=residual)
    assert mx.array_equal(y, residual + product(normalised, weights))
    (y,) = linear(x, [weights, weights], norm=(norm, 1e-3), gated=True)
    assert mx.array_equal(y, linear(normalised, [weights, weights], gated=True)[0])


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("M", ROWS)
def test_results_split_into_heads(M, dtype):
    matrices = [packed(heads * 24, 192, dtype=dtype, seed=heads) for heads in (6, 1, 2)]
    biases = [normal(len(w.words), dtype=dtype) for w in matrices]
    x = normal(2, M, 192, dtype=dtype)
    whole = linear(x, matrices, bias=biases)
    for heads, flat in zip(linear(x, matrices, bias=biases, split=24), whole, strict=True):
        assert heads.shape == (2, M, flat.shape[-1] // 24, 24)
        assert mx.array_equal(mx.flatten(heads, -2, -1), flat)


@pytest.mark.parametrize("shape", [(64,), (3, 64), (2, 3, 64), (2, 1, 5, 64), (0, 64), (2, 0, 64)], ids=str)
def test_any_number_of_axes(shape):
    weights, x = packed(9, 64), normal(*shape)
    (y,) = linear(x, [weights], residual=mx.ones((*shape[:-1], 9)))
    assert y.shape == (*shape[:-1], 9)
    if y.size:
        assert mx.array_equal(y, product(x[None], weights)[0] + 1)


@pytest.mark.parametrize("sizes", [(0, 8), (8, 0), (8, 0, 8), (0, 0)], ids=str)
@pytest.mark.parametrize("M", [1, 20])
def test_matrices_without_outputs(M, sizes):
    x, matrices = normal(M, 64), [packed(size, 64) for size in sizes]
    for y, weights in zip(linear(x, matrices), matrices, strict=True):
        assert y.shape == (M, len(weights.words))
        assert mx.array_equal(y, product(x, weights))


def test_layouts():
    """Rows with one stride, rows without, and gaps between elements; residual and bias likewise."""
    weights = packed(50, 192)
    x, residual, bias = normal(4, 6, 192), normal(4, 6, 50), normal(50)
    plain = linear(x, [weights], residual=residual, bias=[bias])[0]
    wide = mx.contiguous(mx.concatenate([x, x], axis=-1))[..., :192]
    turned = mx.contiguous(x.swapaxes(0, 1)).swapaxes(0, 1)
    spread = mx.contiguous(mx.repeat(x, 2, axis=-1))[..., ::2]
    turned_residual = mx.contiguous(residual.swapaxes(0, 1)).swapaxes(0, 1)
    spread_bias = mx.contiguous(mx.repeat(bias, 3))[::3]
    for moved in (wide, turned, spread):
        y = linear(moved, [weights], residual=turned_residual, bias=[spread_bias])[0]
        assert mx.array_equal(y, plain)


def test_gradient_with_respect_to_x_and_the_residual():
    gate, up, x, residual = (
        packed(40, 64, seed=1),
        packed(40, 64, seed=2),
        normal(3, 5, 64) * 0.1,
        normal(3, 5, 40),
    )
    seed = normal(3, 5, 40, seed=4)

    def fused(x, residual):
        return (linear(x, [gate, up], gated=True, residual=residual)[0] * seed).sum()

    def plain(x, residual):
        a, b = (x @ mx.array(w.dense().T.astype(np.float32)) for w in (gate, up))
        return ((a * mx.sigmoid(a) * b + residual) * seed).sum()

    for got, expected in zip(
        mx.grad(fused, argnums=(0, 1))(x, residual), mx.grad(plain, argnums=(0, 1))(x, residual), strict=True
    ):
        assert mx.allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_gradients_through_a_norm_and_heads():
    weights, x, norm = packed(40, 64), normal(3, 5, 64), normal(64, seed=6)
    seed = normal(3, 5, 5, 8, seed=4)

    def fused(x, norm):
        return (linear(x, [weights], norm=(norm, 1e-5), split=8)[0] * seed).sum()

    def plain(x, norm):
        heads = mx.fast.rms_norm(x, norm, 1e-5) @ mx.array(weights.dense().T.astype(np.float32))
        return (mx.unflatten(heads, -1, (5, 8)) * seed).sum()

    for got, expected in zip(
        mx.grad(fused, argnums=(0, 1))(x, norm), mx.grad(plain, argnums=(0, 1))(x, norm), strict=True
    ):
        assert mx.allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_vmap_and_compile():
    weights, x, residual, norm = packed(40, 64), normal(6, 3, 64), normal(6, 3, 40), normal(64)

    def layer(x, residual):
        return linear(x, [weights], norm=(norm, 1e-5), residual=residual)[0]

    def heads(x):
        return linear(x, [weights], split=8)[0]

    assert mx.array_equal(mx.vmap(heads)(x), heads(x))

    expected = layer(x, residual)
    assert mx.array_equal(mx.vmap(layer)(x, residual), expected)
    assert mx.array_equal(mx.vmap(layer, in_axes=(1, 1), out_axes=1)(x, residual), expected)
    assert mx.array_equal(mx.compile(layer)(x, residual), expected)


OPTIONS = {
    "nothing else": {},
    "a bias": {"bias": True},
    "a norm": {"norm": (normal(64, seed=6), 1e-5)},
    "a residual": {"residual": normal(40, seed=7)},
    "a gate": {"gated": True},
    "heads": {"split": 8},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_derivatives_of_a_single_vector(name):
    """A vector gives the same as a matrix of one row."""
    options = dict(OPTIONS[name])
    matrices = [packed(40, 64, seed=seed) for seed in range(2 if options.get("gated") else 1)]
    if options.pop("bias", False):
        options["bias"] = [normal(40, seed=5)]
    in_rows = options | ({"residual": options["residual"][None]} if "residual" in options else {})
    factor, x, tangent = normal(40, seed=4), normal(4, 64), normal(4, 64, seed=1)

    def vector(x):
        return linear(x, matrices, **options)[0]

    def loss(x):
        return (vector(x).flatten() * factor).sum()

    def row(x):
        return linear(x[None], matrices, **in_rows)[0][0]

    def loss_of_row(x):
        return (row(x).flatten() * factor).sum()

    gradients = mx.stack([mx.grad(loss_of_row)(one) for one in x])
    assert mx.array_equal(mx.grad(loss)(x[0]), gradients[0])
    assert mx.allclose(mx.vmap(mx.grad(loss))(x), gradients, rtol=1e-4, atol=1e-4)
    for got, expected in zip(*(mx.jvp(f, [x[0]], [tangent[0]]) for f in (vector, row)), strict=True):
        assert mx.array_equal(got[0], expected[0])


@pytest.mark.parametrize("sizes", [(3, 0, 64), (0, 0, 0), (3, 5, 0)], ids=str)
def test_the_gradient_of_an_empty_product_is_zero(sizes):
    M, N, K = sizes
    x, matrices = mx.ones((M, K)), [packed(N, K), packed(N, K)]
    gradient = mx.grad(lambda x: linear(x, matrices, gated=True)[0].sum())(x)
    assert mx.array_equal(gradient, mx.zeros_like(x))


def test_the_gradient_with_respect_to_weights_is_refused():
    weights, x = packed(4, 64), normal(2, 64)
    with pytest.raises(NotImplementedError, match="quantized_matmul"):
        mx.grad(lambda s: linear(x, [weights._replace(scales=s)])[0].sum())(weights.scales)


ONE, OTHER = packed(8, 64), packed(9, 64)
REFUSED = {
    "matrices: got none": ((), {}),
    "matrices: got 1": ([ONE], {"gated": True}),
    "matrices: got \\(9, 8\\)": ([ONE, OTHER], {"gated": True}),
    "residual: got 2 results": ([ONE, OTHER], {"residual": mx.ones((3, 8))}),
    "residual: got \\(3, 9\\)": ([ONE], {"residual": mx.ones((3, 9))}),
    "residual: got float16": ([ONE], {"residual": mx.ones((3, 8), dtype=mx.float16)}),
    "bias: got \\(9,\\)": ([ONE], {"bias": [mx.ones(9)]}),
    "bias: got 2 arrays": ([ONE], {"bias": [mx.ones(8), mx.ones(8)]}),
    "norm: got \\(63,\\)": ([ONE], {"norm": (mx.ones(63), 1e-5)}),
    "norm: got int32": ([ONE], {"norm": (mx.ones(64, dtype=mx.int32), 1e-5)}),
    "eps: got -1": ([ONE], {"norm": (mx.ones(64), -1.0)}),
    "split: got 3": ([ONE], {"split": 3}),
    "split: got 0": ([ONE], {"split": 0}),
    "split: got 4": ([ONE], {"split": 4, "residual": mx.ones((3, 8))}),
    "x: got \\(3, 64\\)": ([packed(8, 32, group_size=32)], {}),
}


@pytest.mark.parametrize("text", REFUSED)
def test_bad_input(text):
    matrices, options = REFUSED[text]
    group_size = matrices[0].group_size if matrices else 64
    with pytest.raises(ValueError, match=f"^quantized_linear: {text}.*, expected "):
        native.quantized_linear(normal(3, 64), [triple(w) for w in matrices], group_size, 4, **options)
