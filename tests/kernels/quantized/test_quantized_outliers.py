"""The quantized product of rows in which some elements are far larger than the others."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.runtime.extension import load_extension

from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.covering import pairwise
from ...support.native import active_isa, available_isas
from ...support.processes.child import assert_tests_pass
from ...support.products.quantized import assert_product, multiply, packed, without_weight


def assert_close(a, weights):
    assert_product(multiply(a, weights), a, weights)


@pytest.mark.parametrize("group_size", [32, 64, 128])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("M", [1, 2, 4, 8, 16, 33])
def test_many_large_elements_leave_the_others_exact(M, bits, group_size):
    """A path that scales a quantization group by its largest element has the fewest bits for the others."""
    large = mx.arange(0, 5 * group_size, 4)
    a = normal(M, 5 * group_size)
    a[:, large] = 40
    weights = packed(101, 5 * group_size, group_size=group_size, bits=bits)
    assert_close(a, without_weight(weights, large, "middle"))


# One outlier, as many adjacent ones as a row of 896 may have, and as many spread over the row.
PLACES = {"one": [70], "adjacent": range(200, 214), "scattered": range(3, 896, 64)}


@pairwise(
    {
        "M": [1, 2, 4, 8, 16, 20, 31, 33],
        "bits": [4, 8],
        "number": ["lowest", "middle"],
        "places": list(PLACES),
        "dtype": [mx.float32, mx.bfloat16],
    }
)
def test_outliers_with_weights_of_zero_leave_no_error(M, bits, number, places, dtype):
    """Errors are then relative to the results of the other elements."""
    outliers = mx.array(list(PLACES[places]))
    weights = without_weight(packed(101, 896, bits=bits, dtype=dtype), outliers, number)
    for size in (1e3, -6e4, 1e6, 1e12):
        a = normal(M, 896, dtype=dtype)
        a[::2, outliers] = size
        a[-1, outliers] = -size
        assert_close(a, weights)


@pytest.mark.parametrize("M", [1, 2, 16, 40])
def test_tiny_elements_of_a_short_row_make_no_outliers_of_the_others(M):
    """Otherwise there would be too many outliers, and the element of 1e8 would not be treated as one."""
    weights, a = without_weight(packed(40, 128, group_size=128), mx.array([34]), "lowest"), normal(M, 128)
    a[:, :5] = 1e-4
    a[:, 34] = 1e8
    assert_close(a, weights)


@pytest.mark.parametrize("M", [1, 2, 8, 16, 31])
def test_too_many_large_elements_are_not_outliers(M):
    weights, a = packed(101, 192), normal(M, 192)
    a[:, mx.array(np.flatnonzero(np.arange(192) % 16 < 8))] *= 1e6
    assert_close(a, weights)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("M", [1, 2, 8])
def test_infinities_keep_their_sign_or_are_too_many(M, dtype):
    """Four of 192 may be outliers; a row with more of them is NaN, as is one with a NaN among them."""
    weights = packed(101, 192, dtype=dtype)
    weights = weights._replace(biases=mx.abs(weights.biases))
    a = normal(M, 192, dtype=dtype)
    a[:, 5:9] = mx.inf
    assert mx.all(multiply(a, weights) == mx.inf)
    a[0, 100] = mx.nan
    assert mx.array_equal(mx.isnan(multiply(a, weights)), mx.repeat(mx.arange(M)[:, None] == 0, 101, 1))
    a[0] = mx.inf
    out = multiply(a, weights)
    assert mx.all(mx.isnan(out[0]))
    assert mx.all(out[1:] == mx.inf)


@pytest.mark.slow
@pytest.mark.parametrize("isa", [isa for isa in available_isas() if isa != active_isa()])
def test_each_other_instruction_set(isa, monkeypatch):
    """In a process of its own: the instruction set is chosen once per process."""
    monkeypatch.setenv("TINY_LLM_CPU_ISA", isa)
    assert_tests_pass(__file__, "outlier")


@pytest.fixture
def each_number_of_threads():
    """Products that are made between two steps of this iterator have one thread, then 2, then 16."""
    native = load_extension()
    before = native.cpu_threads()

    def numbers():
        for threads in (1, 2, 16):
            native.set_cpu_threads(str(threads))
            yield threads

    yield numbers
    native.set_cpu_threads(",".join(map(str, before)))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("M", [8, 13, 40])
def test_threads_that_share_the_packing_give_the_bits_of_one(M, dtype, each_number_of_threads):
    """A panel of long rows is packed in pieces, of which some have outliers and some have none."""
    weights, a = packed(301, 4864, dtype=dtype), normal(M, 4864, dtype=dtype)
    a[::3, mx.array([5, 2500, 4863])] = 6e4
    alone, *shared = [multiply(a, weights) for _ in each_number_of_threads()]
    assert all(mx.array_equal(alone, each) for each in shared)
