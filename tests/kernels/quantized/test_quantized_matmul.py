"""The quantized product equals the float64 product with the decoded weights."""

import mlx.core as mx
import pytest

from tiny_llm.runtime.extension import load_extension

from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.covering import pairwise
from ...support.native import active_isa, available_isas
from ...support.processes.child import assert_tests_pass
from ...support.products.quantized import Packed, assert_product, multiply, packed, without_weight
from ...support.refusal import case_id, refused

quantized_matmul = load_extension().quantized_matmul


def check(a, weights):
    out = multiply(a, weights)
    assert_product(out, a, weights)
    return out


@pairwise(
    {
        "M": [1, 2, 3, 7, 8, 9, 16, 20, 31, 32, 33, 70, 128, 257],
        "bits": [4, 8],
        "group_size": [32, 64, 128],
        "dtype": DTYPES,
    }
)
def test_each_format_and_dtype(M, bits, group_size, dtype):
    """N and the number of quantization groups are not multiples of any block size."""
    weights = packed(101, 5 * group_size, group_size=group_size, bits=bits, dtype=dtype)
    check(normal(M, 5 * group_size, dtype=dtype), weights)


@pytest.mark.slow
@pytest.mark.parametrize("isa", [isa for isa in available_isas() if isa != active_isa()])
def test_each_other_instruction_set(isa, monkeypatch):
    """In a process of its own: the instruction set is chosen once per process."""
    monkeypatch.setenv("TINY_LLM_CPU_ISA", isa)
    assert_tests_pass(__file__, "each_format")


# In float32, and in bfloat16, for which some instruction sets have pairs or tiles.
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("M", [*range(1, 14), 16, 17, 31, 33, 48, 63, 64, 65, 67, 128, 129, 256, 257, 300])
def test_each_number_of_rows(M, dtype):
    check(normal(M, 192, dtype=dtype), packed(50, 192, dtype=dtype))


@pairwise(
    {
        "M": [1, 2, 5, 7, 11, 37],
        "N": [1, 2, 5, 15, 16, 17, 31, 33, 47, 48, 49, 97, 300],
        "dtype": [mx.float32, mx.bfloat16],
    }
)
def test_each_number_of_outputs(M, N, dtype):
    check(normal(M, 64, dtype=dtype), packed(N, 64, dtype=dtype))


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("M", [1, 2, 5, 7, 11, 37])
def test_an_output_has_the_same_bits_alone(M, dtype):
    a, weights = normal(M, 576, dtype=dtype), packed(300, 576, dtype=dtype)
    together = multiply(a, weights)
    for n in (0, 15, 16, 63, 64, 127, 255, 256, 299):
        alone = Packed(*(rows[n : n + 1] if isinstance(rows, mx.array) else rows for rows in weights))
        assert mx.array_equal(multiply(a, alone)[:, 0], together[:, n]), n


@pairwise({"K": [64, 512, 576, 896, 1024, 4864], "M": [1, 2, 6, 12, 24], "dtype": [mx.float32, mx.bfloat16]})
def test_each_depth(K, M, dtype):
    check(normal(M, K, dtype=dtype), packed(33, K, dtype=dtype))


@pytest.mark.parametrize("shape", [(0, 5, 64), (3, 0, 64), (3, 5, 0), (0, 0, 0)], ids=str)
def test_sizes_of_zero(shape):
    M, N, K = shape
    out = multiply(mx.zeros((M, K)), packed(N, K))
    assert out.shape == (M, N)
    assert not mx.any(out)


# By the first of `counts`, the paths there are instead: the most rows of each, then fewer to compare.
PATHS_ON_AMX = {
    mx.bfloat16: {8: [(5, 3, 4), (32, 6, 7)], 16: [(32, 8, 9, 16, 20, 31)]},
    mx.float16: {8: [(5, 3, 4), (600, 6, 7)], 16: [(16, *range(8, 16))], 32: [(600, 9, 20, 31)]},
    mx.float32: {8: [(5, 3, 4), (8, 6, 7)], 16: [(16, *range(9, 16))], 32: [(600, 9, 20, 31)]},
}


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("N", "counts"),
    [
        (533, (2, 1)),
        (177, (8, *range(3, 8))),
        (80, (16, *range(9, 16))),
        (50, (32, 17, 20, 21, 31)),
        (40, (600, 33, 47, 63, 65, 520)),
    ],
    ids=["one or two", "few", "to 16", "to 32", "many"],
)
def test_the_bits_of_a_row_do_not_depend_on_the_other_rows(N, counts, bits, dtype):
    """Each path (GEMV, skinny, blocked) has one order of operations.

    The instruction set decides which of them 9 to 16 and 17 to 32 rows take.
    """
    paths = [counts]
    if active_isa() == "amx":
        paths = PATHS_ON_AMX[dtype].get(counts[0], paths)
    weights = without_weight(packed(N, 1152, group_size=128, bits=bits, dtype=dtype), mx.array([7]), "middle")
    for most, *others in paths:
        a = normal(most, 1152, dtype=dtype)
        a[::2, 7] = 1e4  # its weight is 0; otherwise it would hide the last bits of the others
        together = multiply(a, weights)
        for count in others:
            begin = (most - count) // 2
            alone = multiply(a[begin : begin + count], weights)
            assert mx.array_equal(alone, together[begin : begin + count])


def test_equal_calls_give_equal_bits():
    a, weights = normal(70, 896), packed(500, 896)
    assert mx.array_equal(multiply(a, weights), multiply(a, weights))


def strided(x):
    """The same values with gaps in both axes."""
    return mx.contiguous(mx.repeat(mx.repeat(x, 2, axis=0), 2, axis=1))[::2, ::2]


def transposed(x):
    return mx.contiguous(x.T).T


def rows_apart(x):
    return mx.contiguous(mx.concatenate([x, x], axis=1))[:, : x.shape[1]]


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("layout", [strided, transposed, rows_apart])
@pytest.mark.parametrize("M", [1, 33])
def test_layouts(M, layout, dtype):
    a, weights = normal(M, 192, dtype=dtype), packed(50, 192, dtype=dtype)
    plain = check(a, weights)
    moved = weights._replace(
        **{name: layout(getattr(weights, name)) for name in ("scales", "biases", "words")}
    )
    assert mx.array_equal(multiply(layout(a), moved), plain)


def test_one_row_of_weights_for_all_outputs_by_stride():
    weights = packed(1, 128)
    wide = weights._replace(
        **{
            name: mx.broadcast_to(getattr(weights, name), (40, getattr(weights, name).shape[1]))
            for name in ("scales", "biases", "words")
        }
    )
    check(normal(9, 128), wide)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_gradient_of_the_activations(dtype):
    weights = packed(40, 128, dtype=dtype)
    factor = normal(9, 40, dtype=dtype, seed=1)
    gradient = mx.grad(lambda a: mx.sum(multiply(a, weights) * factor))(normal(9, 128, dtype=dtype))
    dense = mx.array(weights.dense().astype("float32"))
    expected = factor.astype(mx.float32) @ dense
    assert gradient.dtype == dtype
    tolerance = {mx.float32: 1e-5, mx.float16: 1e-3, mx.bfloat16: 8e-3}[dtype]
    assert mx.max(mx.abs(gradient - expected)) <= tolerance * mx.max(mx.abs(expected))


@pytest.mark.parametrize("shape", [(0, 5, 64), (3, 0, 64), (3, 5, 0), (0, 0, 0)], ids=str)
def test_the_gradient_of_an_empty_product_is_zero(shape):
    M, N, K = shape
    a = mx.ones((M, K), dtype=mx.bfloat16)
    gradient = mx.grad(lambda a: mx.sum(multiply(a, packed(N, K, dtype=mx.bfloat16))))(a)
    assert gradient.dtype == a.dtype
    assert mx.array_equal(gradient, mx.zeros_like(a))


def test_jvp_of_the_activations_is_the_product_with_the_tangent():
    weights, a, tangent = packed(40, 128), normal(9, 128), normal(9, 128, seed=1)
    _, (derivative,) = mx.jvp(lambda x: multiply(x, weights), [a], [tangent])
    assert mx.array_equal(derivative, multiply(tangent, weights))


@pytest.mark.parametrize("name", ["scales", "biases"])
def test_the_gradient_of_the_weights_is_refused(name):
    weights, a = packed(40, 128), normal(9, 128)
    loss = lambda x: mx.sum(multiply(a, weights._replace(**{name: x})))  # noqa: E731
    with pytest.raises(NotImplementedError, match=r"^quantized_matmul: "):
        mx.eval(mx.grad(loss)(getattr(weights, name)))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_vmap_over_rows(axis):
    weights, a = packed(40, 128), normal(3, 33, 128)
    mapped = mx.vmap(lambda x: multiply(x, weights), in_axes=axis)(mx.moveaxis(a, 0, axis))
    assert mx.array_equal(mapped, mx.stack([multiply(x, weights) for x in a]))


def test_vmap_over_weights_is_refused():
    weights, a = packed(40, 128), normal(9, 128)
    words = mx.stack([weights.words, weights.words])
    with pytest.raises(NotImplementedError, match=r"^quantized_matmul: vmap"):
        mx.vmap(lambda w: multiply(a, weights._replace(words=w)))(words)


def test_compile_and_shapeless_compile():
    weights = packed(40, 128)
    compiled = mx.compile(lambda a: multiply(a, weights), shapeless=True)
    for M in (1, 9, 70):
        a = normal(M, 128)
        assert mx.array_equal(compiled(a), multiply(a, weights))


def test_calls_of_another_format_are_not_merged():
    """40 words are also a row of 320 numbers of 4 bits; compile merges equal nodes only."""
    words = packed(40, 128, group_size=32).words
    a, scales, biases = normal(3, 128), normal(40, 4, seed=1), normal(40, 4, seed=2)
    narrow = mx.concatenate([a, a], axis=1)

    def both(scales, biases):
        one = quantized_matmul(scales, biases, 32, 4, a, words, True)
        two = quantized_matmul(scales[:, :2], biases[:, :2], 32, 8, narrow[:, :64], words, True)
        return one, two

    for got, want in zip(mx.compile(both)(scales, biases), both(scales, biases), strict=True):
        assert mx.array_equal(got, want)


FLOAT = mx.zeros((40, 2))
FITTING = {"scales": FLOAT, "biases": FLOAT, "group_size": 64, "bits": 4, "a": mx.zeros((3, 128)),
           "b": mx.zeros((40, 16), dtype=mx.uint32), "transpose_b": True}  # fmt: skip
HALF = mx.float16


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("group_size", {"group_size": 16}),
        ("group_size", {"group_size": 0}),
        ("group_size", {"group_size": -64}),
        ("bits", {"bits": 2}),
        ("bits", {"bits": 0}),
        ("transpose_b", {"transpose_b": False}),
        ("scales", {"scales": mx.zeros((40, 2), dtype=mx.int32)}),
        ("biases", {"biases": FLOAT.astype(HALF)}),
        ("a", {"a": mx.zeros((3, 128), dtype=HALF)}),
        ("a", {"a": mx.zeros((3, 128), dtype=mx.int32)}),
        ("b", {"b": mx.zeros((40, 16), dtype=mx.int32)}),
        ("b", {"b": mx.zeros((40, 16))}),
        ("scales", {"scales": mx.zeros((40,))}),
        ("biases", {"biases": mx.zeros((40, 3))}),
        ("biases", {"biases": mx.zeros((39, 2))}),
        ("b", {"b": mx.zeros((39, 16), dtype=mx.uint32)}),
        ("b", {"b": mx.zeros((40, 15), dtype=mx.uint32)}),
        ("b", {"bits": 8}),
        ("b", {"group_size": 32}),
        ("b", {"b": mx.zeros((2, 40, 16), dtype=mx.uint32)}),
        ("a", {"a": mx.zeros((3, 127))}),
        ("a", {"a": mx.zeros((3, 192))}),
        ("a", {"a": mx.zeros((128,))}),
        ("a", {"a": mx.zeros((1, 3, 128))}),
    ],
    ids=case_id,
)
def test_refused_at_the_call(argument, wrong):
    with refused(argument, function="quantized_matmul"):
        quantized_matmul(**(FITTING | wrong))


def test_correct_arguments_are_accepted():
    assert quantized_matmul(**FITTING).shape == (3, 40)


@pytest.mark.skipif(mx.metal.is_available(), reason="a Metal build has a kernel")
def test_a_gpu_without_a_kernel_is_named():
    with pytest.raises(RuntimeError, match=r"^quantized_matmul: .*gpu"):
        quantized_matmul(**FITTING, stream=mx.gpu)
