"""The dense product equals the float64 product, on every instruction set."""

import mlx.core as mx
import pytest

from tiny_llm.basics import linear as layer
from tiny_llm.runtime.extension import load_extension

from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.covering import pairwise
from ...support.native import active_isa, available_isas
from ...support.processes.child import assert_tests_pass
from ...support.products.linear import assert_near, assert_product, expected, inputs
from ...support.refusal import case_id, refused

linear = load_extension().linear


def check(x, w, bias=None):
    out = linear(x, w, bias)
    assert_product(out, x, w, bias)
    return out


ROWS = [1, 2, 3, 5, 7, 8, 9, 12, 13, 16, 17, 23, 31, 33, 128, 257]


@pairwise({"M": ROWS, "K": [129, 896], "dtype": DTYPES})
def test_each_number_of_rows(M, K, dtype):
    """N is not a multiple of any block size."""
    check(*inputs(M, 203, K, dtype))


@pytest.mark.slow
@pytest.mark.parametrize("isa", [isa for isa in available_isas() if isa != active_isa()])
def test_each_other_instruction_set(isa, monkeypatch):
    """In a process of its own: the instruction set is chosen once per process."""
    monkeypatch.setenv("TINY_LLM_CPU_ISA", isa)
    assert_tests_pass(__file__, "each_number")


@pairwise({"M": [1, 3, 8, 11, 40], "N": [1, 2, 5, 15, 16, 17, 47, 48, 49, 97, 300], "dtype": DTYPES})
def test_each_number_of_outputs(M, N, dtype):
    check(*inputs(M, N, 64, dtype))


@pairwise(
    {
        "K": [1, 2, 3, 15, 16, 17, 31, 33, 63, 100, 255, 257, 513, 2000],
        "M": [1, 5, 12, 15, 70],
        "dtype": DTYPES,
    }
)
def test_each_depth(K, M, dtype):
    check(*inputs(M, 33, K, dtype))


@pytest.mark.parametrize("shape", [(0, 5, 64), (3, 0, 64), (3, 5, 0), (70, 5, 0), (0, 0, 0)], ids=str)
def test_sizes_of_zero(shape):
    M, N, K = shape
    x, w, bias = mx.zeros((M, K)), mx.zeros((N, K)), mx.arange(N).astype(mx.float32)
    assert mx.array_equal(linear(x, w), mx.zeros((M, N)))
    assert mx.array_equal(linear(x, w, bias), mx.broadcast_to(bias, (M, N)))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(
    "counts",
    [
        range(8, 0, -1),
        range(12, 8, -1),
        range(23, 16, -1),
        (64, 14, 16, 24, 31, 32, 63),
        (600, 65, 66, 127, 130, 520),
    ],
    ids=["up to 8", "up to 12", "17 to 23", "up to 64", "many"],
)
def test_the_bits_of_a_row_do_not_depend_on_the_other_rows(counts, dtype):
    """Which numbers of rows have the same order of summation depends on the machine."""
    most, *others = counts
    x, w, bias = inputs(most, 101, 1157, dtype)
    together = linear(x, w, bias)
    for count in others:
        begin = (most - count) // 2
        some = linear(x[begin : begin + count], w, bias)
        assert mx.array_equal(some, together[begin : begin + count])


@pytest.mark.parametrize("function", [linear, layer], ids=["kernel", "layer"])
def test_the_bias_is_added_before_rounding(function):
    """257 is between the bfloat16 numbers 256 and 258: rounded first, the sum with 1 would be 256."""
    ones = mx.ones((1, 257), dtype=mx.bfloat16)
    assert function(ones, ones).item() == 256
    assert function(ones, ones, mx.array([1.0], dtype=mx.bfloat16)).item() == 258


def strided(x):
    """The same values with gaps in both axes."""
    return mx.contiguous(mx.repeat(mx.repeat(x, 2, axis=0), 2, axis=1))[::2, ::2]


def transposed(x):
    return mx.contiguous(x.T).T


def rows_apart(x):
    """The rows of 16-bit weights are an odd number of elements apart."""
    return mx.contiguous(mx.concatenate([x, x[:, :1]], axis=1))[:, : x.shape[1]]


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("layout", [strided, transposed, rows_apart])
@pytest.mark.parametrize("M", [1, 33])
def test_layouts(M, layout, dtype):
    x, w, bias = inputs(M, 50, 192, dtype)
    plain = check(x, w, bias)
    assert mx.array_equal(linear(layout(x), layout(w), mx.repeat(bias, 2)[::2]), plain)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("M", [1, 33])
def test_weights_that_begin_at_an_odd_element(M, dtype):
    x, w, _ = inputs(M, 51, 192, dtype)
    moved = mx.concatenate([w[:1, :1].reshape(-1), w.reshape(-1)])[1:].reshape(w.shape)
    assert mx.array_equal(linear(x, moved), check(x, w))


def test_one_row_of_weights_for_all_outputs_by_stride():
    x, w, bias = inputs(9, 1, 128)
    check(x, mx.broadcast_to(w, (40, 128)), mx.broadcast_to(bias, (40,)))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("M", [5, 12, 16, 80])
def test_nan_and_infinity_stay_in_their_row_and_output(M, dtype):
    x, w, bias = inputs(M, 40, 131, dtype)
    x[3, 130] = mx.nan
    w[5, 1] = mx.inf
    bias[7] = mx.nan
    wrong = ~mx.isfinite(linear(x, w, bias))
    columns = (mx.arange(40) == 5) | (mx.arange(40) == 7)
    assert mx.array_equal(wrong, (mx.arange(M)[:, None] == 3) | columns)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("M", [1, 5, 12, 16, 80])
def test_infinities_keep_their_sign(M, dtype):
    """In a row of x, in weights, and in sums that overflow; other results are unchanged."""
    x, w, _ = inputs(M, 40, 131, dtype)
    x[M - 1] = mx.abs(x[M - 1])
    plain = linear(x, w)
    w[5, 1] = mx.inf
    w[6] = mx.abs(w[6]) * (mx.finfo(dtype).max / 2 / mx.abs(w[6]).max())
    assert mx.isfinite(w[6]).all()
    out = linear(x, w)
    ordinary = (mx.arange(40) != 5) & (mx.arange(40) != 6)
    assert mx.array_equal(mx.where(ordinary, out, 0), mx.where(ordinary, plain, 0))
    assert mx.array_equal(out[:, 5], mx.inf * mx.sign(x[:, 1]))
    assert out[M - 1, 6].item() == mx.inf
    x[0, 130] = -mx.inf
    of_infinity = linear(x, w)
    assert mx.array_equal(of_infinity[1:], out[1:], equal_nan=True)
    wrong = (of_infinity[0] != -mx.inf * mx.sign(w[:, 130])) & ordinary
    assert not wrong.any()


@pytest.mark.parametrize(
    ("of_x", "of_w"), [(-118, 0), (0, -118), (-70, -48), (90, -100), (110, -10), (0, 100)], ids=str
)
@pytest.mark.parametrize("M", [1, 12, 16, 80])
def test_large_and_small_numbers_of_float32(M, of_x, of_w):
    """Powers of two change only the exponents, as long as float32 holds the results."""
    x, w, bias = inputs(M, 40, 131)
    out = linear(x * 2.0**of_x, w * 2.0**of_w, bias * 2.0 ** (of_x + of_w)) * 2.0 ** -(of_x + of_w)
    assert_near(out, expected(x, w, bias))


FITTING = {"x": mx.zeros((3, 20)), "w": mx.zeros((5, 20)), "bias": mx.zeros((5,))}
HALF = mx.float16


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("x", {"x": mx.zeros((3, 20), dtype=mx.int32)}),
        ("w", {"w": mx.zeros((5, 20), dtype=HALF)}),
        ("bias", {"bias": mx.zeros((5,), dtype=HALF)}),
        ("x", {"x": mx.zeros(())}),
        ("w", {"x": mx.zeros((2, 3, 19))}),
        ("w", {"w": mx.zeros((20,))}),
        ("w", {"w": mx.zeros((5, 19))}),
        ("bias", {"bias": mx.zeros((4,))}),
        ("bias", {"bias": mx.zeros((1, 5))}),
        ("bias", {"bias": mx.zeros(())}),
    ],
    ids=case_id,
)
def test_refused_at_the_call(argument, wrong):
    with refused(argument, function="linear"):
        linear(**(FITTING | wrong))


def test_correct_arguments_are_accepted():
    assert linear(**FITTING).shape == (3, 5)


def test_a_gpu_without_a_kernel_is_named():
    with pytest.raises(RuntimeError, match=r"^linear: .*gpu"):
        linear(**FITTING, stream=mx.gpu)


@pytest.mark.parametrize("shape", [(130,), (9, 130), (2, 3, 130), (2, 0, 130), (1, 2, 3, 130)], ids=str)
@pytest.mark.parametrize("function", [linear, layer], ids=["kernel", "layer"])
def test_any_leading_axes(function, shape):
    _, w, bias = inputs(1, 40, 130)
    x = normal(*shape)
    out = function(x, w, bias)
    assert out.shape == (*shape[:-1], 40)
    assert_near(out.reshape(-1, 40), expected(x.reshape(-1, 130), w, bias))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("order", [(1, 0, 2), (2, 0, 1), (0, 2, 1)], ids=str)
def test_axes_in_any_order(order, dtype):
    """Rows have no single stride; in two of the orders, elements of a row are not adjacent."""
    _, w, bias = inputs(1, 40, 130, dtype)
    x = normal(5, 7, 130, dtype=dtype)
    turned = mx.contiguous(mx.transpose(x, order))
    back = [order.index(axis) for axis in range(3)]
    assert mx.array_equal(linear(mx.transpose(turned, back), w, bias), linear(x, w, bias))


def test_the_layer_leaves_mixed_types_to_mlx():
    x, w, bias = inputs(3, 5, 7)
    assert layer(x.astype(HALF), w).dtype == mx.float32
    assert layer(x.astype(HALF), w.astype(HALF), bias).dtype == mx.float32
