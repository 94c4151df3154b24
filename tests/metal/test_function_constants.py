"""Function constants get their values when a kernel runs; its source stays as Metal needs it."""

import numpy as np
import pytest

from .harness.kernel import Kernel

SOURCE = """
#include <metal_stdlib>
namespace of_a_pipeline {
constant int shift [[function_constant(1)]];
}
constant int factor [[ function_constant(0) ]];
kernel void f(device float* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  x[i] = float(factor) * x[i] + float(of_a_pipeline::shift);
}
"""


@pytest.fixture
def kernel():
    return Kernel(SOURCE, "f")


def run(kernel, constants):
    x = np.arange(32, dtype=np.float32)
    outputs, reports = kernel((1, 1, 1), (32, 1, 1), {"x": x}, constants=constants)
    assert reports == []
    return outputs["x"], x


@pytest.mark.parametrize("constants", [(2, 1), (0, 7), (-3, 0)])
def test_each_run_has_its_own_values(kernel, constants):
    got, x = run(kernel, constants)
    assert np.array_equal(got, constants[0] * x + constants[1])


def test_a_missing_value_is_an_error(kernel):
    with pytest.raises(ValueError, match="1 function constants, but the source has 2"):
        run(kernel, (2,))


def test_without_values_the_result_is_wrong(kernel):
    run(kernel, (1, 0))
    got, x = run(kernel, ())
    assert not np.array_equal(got, x)
