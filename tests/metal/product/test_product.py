"""The kernels of the quantized product against the float64 oracle, in every format and type."""

import mlx.core as mx
import numpy as np
import pytest

from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.products.quantized import assert_product, packed
from ..harness.toolchain import COMPILERS
from .run import run_quantized

every_type = pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
every_kernel = pytest.mark.parametrize("M", [1, 3, 33], ids=["one row", "few rows", "many rows"])


def check(M, N, K, dtype=mx.float32, order=0, compiler=None, **format):
    """The harness reports nothing, and the result is the product."""
    weights, a = packed(N, K, dtype=dtype, **format), normal(M, K, dtype=dtype)
    out, reports = run_quantized(a, weights, order=order, compiler=compiler)
    assert reports == []
    assert_product(out, a, weights)
    return out


@every_type
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group_size", [32, 64, 128])
@every_kernel
def test_every_format(M, group_size, bits, dtype):
    check(M, 33, 5 * group_size, dtype, bits=bits, group_size=group_size)


@every_type
@pytest.mark.parametrize("M", [1, 2, 7, 8, 9, 31, 32, 33, 65])
def test_any_number_of_rows(M, dtype):
    check(M, 19, 7 * 64, dtype)


@pytest.mark.parametrize("N", [1, 3, 4, 15, 16, 17, 63, 64, 65, 129])
@every_kernel
def test_any_number_of_outputs(N, M):
    check(M, N, 3 * 64, mx.bfloat16)


@pytest.mark.parametrize(
    ("K", "group_size"), [(32, 32), (7 * 32, 32), (256, 64), (21 * 64, 64), (33 * 128, 128)]
)
@every_kernel
def test_any_length_of_the_sum(K, group_size, M):
    """Fewer words than lanes, as many, and more."""
    check(M, 5, K, group_size=group_size)


@every_kernel
def test_the_empty_sum_is_zero(M):
    assert mx.array_equal(check(M, 5, 0), mx.zeros((M, 5)))


@pytest.mark.parametrize("bits", [4, 8])
@every_kernel
def test_the_lowest_bits_of_a_word_come_first(bits, M):
    """Weights 0, 1, 2 ... times unit vectors: the result shows the order."""
    per_word = 32 // bits
    weights = packed(3, 64, bits=bits)
    word = sum(number << bits * number for number in range(per_word))
    weights = weights._replace(
        words=mx.full(weights.words.shape, word, dtype=mx.uint32),
        scales=mx.full((3, 1), 2.0),
        biases=mx.full((3, 1), -3.0),
    )
    out, _ = run_quantized(mx.eye(64)[:M], weights)
    want = 2.0 * (np.arange(M) % per_word) - 3.0
    assert np.array_equal(np.array(out), np.broadcast_to(want[:, None], (M, 3)))


@every_type
@pytest.mark.parametrize("order", [1, 2, 3])
@every_kernel
def test_the_result_does_not_depend_on_the_order_of_the_lanes(M, order, dtype):
    as_numbered, other = (check(M, 21, 5 * 64, dtype, order=order) for order in (0, order))
    assert mx.array_equal(as_numbered, other)


@pytest.mark.parametrize("compiler", COMPILERS)
@every_type
@every_kernel
def test_every_compiler_gives_the_product(M, dtype, compiler):
    check(M, 21, 3 * 64, dtype, compiler=compiler)


@every_kernel
def test_a_nan_stays_in_its_row(M):
    """It reaches neither other rows nor the padding of a tile."""
    weights, a = packed(5, 192), normal(M, 192)
    a[M // 2, 100] = mx.nan
    out, reports = run_quantized(a, weights)
    assert reports == []
    assert mx.array_equal(mx.all(mx.isnan(out), axis=1), mx.arange(M) == M // 2)
    assert mx.array_equal(mx.any(mx.isnan(out), axis=1), mx.arange(M) == M // 2)


@pytest.mark.parametrize("M", range(1, 9))
def test_a_row_has_the_same_bits_in_every_batch(M):
    """Within one kernel: a request that joins the batch must not change the others."""
    weights, a = packed(21, 320, dtype=mx.float16), normal(8, 320, dtype=mx.float16)
    alone, _ = run_quantized(a[:1], weights)
    together, _ = run_quantized(a[:M], weights)
    assert mx.array_equal(together[:1], alone)
