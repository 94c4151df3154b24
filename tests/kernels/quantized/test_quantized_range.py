"""The quantized product of very large and small numbers, of infinities and of NaN."""

import mlx.core as mx
import numpy as np
import pytest

from ...support.cases import DTYPES, normal
from ...support.covering import pairwise
from ...support.products.quantized import multiply, packed
from ...support.tolerance import to_float64


@pairwise({"bits": [4, 8], "dtype": DTYPES, "M": [1, 2, 3, 12, 33, 75], "number": [mx.nan, mx.inf, -mx.inf]})
def test_nan_and_infinity_stay_in_their_row_and_output(bits, dtype, M, number):
    a, weights = normal(M, 128, dtype=dtype), packed(40, 128, bits=bits, dtype=dtype)
    a[M // 2, 7] = number
    weights.scales[5, 1] = mx.inf
    wrong = ~mx.isfinite(multiply(a, weights))
    expected = (mx.arange(M)[:, None] == M // 2) | (mx.arange(40) == 5)
    assert mx.array_equal(wrong, expected)


@pairwise({"bits": [4, 8], "dtype": DTYPES, "M": [1, 2, 3, 12, 33, 75], "number": [mx.inf, -mx.inf]})
def test_an_infinity_keeps_its_sign(bits, dtype, M, number):
    a, weights = normal(M, 128, dtype=dtype), packed(40, 128, bits=bits, dtype=dtype)
    a[M // 2, 7] = number
    got, exact = to_float64(multiply(a, weights))[M // 2], np.sign(weights.dense()[:, 7]) * number
    assert np.array_equal(got, exact)


# About the largest number of three int8 digits, to which AMX scales the largest element of a group.
EDGES = [0x7F7F7F, 0x7F7F80, 0x7F7F7E, -0x808080, -0x808081, 0x7FFFFF, -0x7FFFFF, 8355711.5, 0x800000]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("M", [1, 2, 3, 11, 20, 33])
def test_numbers_of_every_size(M, bits):
    """Each row has groups of zeros, of limits, and of numbers far smaller and far larger than the others."""
    weights = packed(40, 640, bits=bits)
    a = np.random.default_rng(1).standard_normal((M, 10, 64)).astype(np.float32)
    a[:, 1] = 0
    a[:, 2] *= 1e-30
    a[:, 3, : len(EDGES)] = EDGES
    a[:, 4] = 2.0**-149
    a[:, 5] = 0x7F7F7F
    a[:, 6] = -0x808080
    exact = a.astype(np.float64)
    for groups in ([0, 1], [2], [3], [4], [5, 1], [6], range(10)):
        some = np.zeros_like(a)
        some[:, list(groups)] = a[:, list(groups)]
        expected = np.where(some == a, exact, 0).reshape(M, -1) @ weights.dense().T
        actual = to_float64(multiply(mx.array(some.reshape(M, -1)), weights))
        size = np.abs(some.astype(np.float64)).reshape(M, -1) @ np.abs(weights.dense()).T
        assert np.all(np.abs(actual - expected) <= 1e-5 * size + 1e-44)


@pytest.mark.parametrize("M", [1, 2, 3, 11, 20])
def test_large_and_tiny_rows(M):
    """Equal to the result of an ordinary row times a power of two, if float32 holds that."""
    weights, a = packed(40, 640), normal(M, 640)
    for factor in (2.0**90, 2.0**-90):
        assert mx.array_equal(multiply(a * factor, weights), multiply(a, weights) * factor)


def all_nines(bits, scale, bias):
    """40 outputs of two quantization groups of 64 numbers that are all 9."""
    word = 0x99999999 if bits == 4 else 0x09090909
    return packed(40, 128, bits=bits, dtype=mx.bfloat16)._replace(
        words=mx.full((40, 4 * bits), word, mx.uint32),
        scales=mx.full((40, 2), scale, mx.bfloat16),
        biases=mx.full((40, 2), bias, mx.bfloat16),
    )


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("M", [1, 3, 8, 9, 20, 33])
def test_denormals_count_in_full_or_as_zero(M, bits):
    """Not as zero in the products but in full in the sums for the biases: scales may be large."""
    weights = all_nines(bits, 2.0**10, 0)
    for pair in ([2.0**-128, 2.0**-128], [1.5 * 2.0**-126, -(2.0**-126)]):
        a = mx.tile(mx.array(pair, mx.bfloat16), (M, 64))
        assert mx.all(mx.view(a, mx.uint16) != 0)
        out, exact = to_float64(multiply(a, weights)), 64 * 9 * 2.0**10 * sum(pair)
        size = 64 * 9 * 2.0**10 * sum(map(abs, pair))
        as_zero = np.zeros_like(out, bool) if pair[0] > 2.0**-126 else out == 0
        assert np.all(as_zero | (np.abs(out - exact) <= 0.05 * size))


@pytest.mark.parametrize("M", [1, 3, 8, 20, 33])
def test_large_rows_of_bfloat16(M):
    """The decoded numbers of a quantization group times large x stay within float32."""
    out = multiply(mx.full((M, 128), 2.0**119, mx.bfloat16), all_nines(4, 2.0**-7, -(2.0**-4)))
    assert mx.array_equal(out, mx.full((M, 40), 2.0**119, mx.bfloat16))
