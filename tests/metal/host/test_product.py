"""The host side of the quantized product: the kernels that it dispatches, run by the harness."""

import mlx.core as mx
import pytest

from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.products.quantized import Packed, assert_product, packed
from . import gpu

pytestmark = pytest.mark.usefixtures("metal_device")


def run(a: mx.array, weights: Packed) -> tuple[mx.array, gpu.Record]:
    extension, device = gpu.modules()
    mx.eval(a, *(part for part in weights if isinstance(part, mx.array)))
    scales, biases, group_size, bits, words = weights
    product = extension.quantized_matmul(
        scales, biases, group_size, bits, a, words, True, stream=device.gpu_stream()
    )
    return product, gpu.evaluate(product)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("bits", "group_size"), [(4, 64), (8, 32), (4, 128)])
@pytest.mark.parametrize("M", [1, 3, 33])
def test_the_product(M, bits, group_size, dtype):
    weights = packed(37, 3 * group_size, bits=bits, group_size=group_size, dtype=dtype)
    a = normal(M, 3 * group_size, dtype=dtype)
    product, record = run(a, weights)
    assert record.reports == []
    assert_product(product, a, weights)


def test_inputs_that_are_not_dense_are_copied():
    weights, a = packed(16, 128), normal(5, 256)[:, ::2]
    weights = weights._replace(words=mx.contiguous(weights.words.T).T)
    product, record = run(a, weights)
    assert record.reports == []
    assert_product(product, a, weights)


@pytest.mark.skipif(gpu.IS_REAL, reason="a real GPU records nothing")
@pytest.mark.parametrize(("M", "N", "K"), [(0, 5, 64), (3, 0, 64)])
def test_nothing_to_compute_dispatches_nothing(M, N, K):
    product, record = run(normal(M, K), packed(N, K))
    assert (product.shape, record.kernels) == ((M, N), [])


def test_the_empty_sum_is_zero():
    product, record = run(normal(3, 0), packed(5, 0))
    assert record.reports == []
    assert mx.array_equal(product, mx.zeros((3, 5)))
