"""The quantized product of rows in which some elements are far larger than the others."""

import mlx.core as mx
import numpy as np
import pytest

from ..support.cases import DTYPE_IDS, DTYPES, normal
from ..support.child import assert_tests_pass
from ..support.native import active_isa, available_isas
from ..support.quantized import assert_product, multiply, packed


def assert_close(a, weights):
    assert_product(multiply(a, weights), a, weights)


@pytest.mark.parametrize("outlier", [1e3, 1e4])
@pytest.mark.parametrize("group_size", [32, 64, 128])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("M", [1, 2, 4, 8, 16])
def test_an_outlier_leaves_the_others_of_its_group_their_digits(M, bits, group_size, outlier):
    """A form that scales a group of x by its largest number has the fewest bits for the others here.

    In float32: what the half types may be off is more than all others add up to.
    """
    a = normal(M, 5 * group_size)
    a[mx.arange(M), 2 * group_size + mx.arange(M)] = outlier
    assert_close(a, packed(101, 5 * group_size, group_size=group_size, bits=bits))


OUTLIERS = [300.0, 1e3, -6e4, 1e6, 1e12]


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("zero", ["lowest", "middle"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("M", [1, 2, 4, 8, 16, 20, 31, 33])
def test_an_outlier_without_weight_leaves_no_error(M, bits, zero, dtype):
    """The largest result, which errors are compared with, then is that of the others."""
    weights, number = packed(101, 192, bits=bits, dtype=dtype), 0 if zero == "lowest" else 2 ** (bits - 1)
    a = normal(M, 192, dtype=dtype)
    places = np.arange(M) * 5 % 60  # of their own group
    words = np.array(weights.words)
    words.view(np.uint8)[:, places * bits // 8] = number * (17 if bits == 4 else 1)
    weights = weights._replace(words=mx.array(words), biases=-number * weights.scales)
    assert not weights.dense()[:, places].any()
    for outlier in OUTLIERS[: 3 if dtype == mx.float16 else None]:
        a[mx.arange(M), mx.array(places)] = outlier
        assert_close(a, weights)


@pytest.mark.parametrize("M", [1, 2, 8, 16, 31])
def test_as_many_outliers_as_other_elements(M):
    weights, a = packed(101, 192), normal(M, 192)
    a[:, mx.array(np.flatnonzero(np.arange(192) % 16 < 8))] *= 1e6
    assert_close(a, weights)


@pytest.mark.parametrize("isa", [isa for isa in available_isas() if isa != active_isa()])
def test_each_other_instruction_set(isa, monkeypatch):
    """In a process of its own: the instruction set is chosen once."""
    monkeypatch.setenv("TINY_LLM_CPU_ISA", isa)
    assert_tests_pass(__file__, "outlier")
