"""The host refuses sizes that overflow the kernels' integers, and accepts the largest that do not."""

import mlx.core as mx
import pytest

from ...support.cases import normal
from ...support.products.quantized import packed
from ..host import gpu
from ..product.run import launch_product

pytestmark = [
    pytest.mark.skipif(gpu.IS_REAL, reason="only the recording device accepts arrays of this size"),
    pytest.mark.usefixtures("metal_device"),
]

BEYOND = "a size does not fit the integers of the Metal kernels"
MOST_POSITIONS = 2**30 - 1  # rows or keys: a position plus an unbounded window must fit an int32
MOST_PRODUCTS = 2**31 - 1 - 64  # rows or outputs: the last tile may exceed them by 64


def explained(batch, heads, L, S, E=64, kv_heads=1):
    query = mx.broadcast_to(mx.zeros(E), (*batch, heads, L, E))
    key = mx.broadcast_to(mx.zeros(E), (*batch, kv_heads, S, E))
    return gpu.explain(query, key, key)


@pytest.mark.parametrize(
    ("batch", "heads", "L", "S"),
    [
        ((), 2**31 - 1, 1, 1),
        ((2**16 - 1,), 2**15, 1, 1),
        ((), 1, MOST_POSITIONS, 1),
        ((), 1, 1, MOST_POSITIONS),
    ],
)
def test_the_largest_sizes(batch, heads, L, S):
    found = explained(batch, heads, L, S)
    assert found["path"].startswith("metal."), found["reasons"]
    assert found["reasons"] == ()


@pytest.mark.parametrize(
    ("batch", "heads", "L", "S"),
    [
        ((2**16,), 2**15, 1, 1),
        ((2,), 2**30, 1, 1),
        ((2**16, 2**16), 1, 1, 1),
        ((2**16, 2**16), 2**16, 1, 1),
        ((), 1, MOST_POSITIONS + 1, 1),
        ((), 1, 1, MOST_POSITIONS + 1),
        ((), 1, 2**31 - 1, 2**31 - 1),
    ],
)
def test_larger_sizes_take_the_reference(batch, heads, L, S):
    found = explained(batch, heads, L, S)
    assert (found["path"], found["reasons"][0]) == ("reference", BEYOND)


@pytest.mark.parametrize("M", [1, 8, 9, MOST_PRODUCTS])
@pytest.mark.parametrize("N", [1, 2**30 + 1, MOST_PRODUCTS])
def test_the_grid_of_the_largest_product(M, N):
    found, _ = launch_product(M, N, 64, 4, 64, mx.float32)
    want = (-(-N // 64), -(-M // 32), 1) if M > 8 else (-(-N // 16), 1, 1)
    assert found.threadgroups == want


@pytest.mark.parametrize("M", [MOST_PRODUCTS + 1, 2**31 - 1])
def test_a_product_of_more_rows_is_an_error(M):
    extension, device = gpu.modules()
    weights = packed(1, 64)
    a = mx.broadcast_to(normal(1, 64), (M, 64))
    mx.eval(a, weights.scales, weights.biases, weights.words)
    product = extension.quantized_matmul(*weights[:4], a, weights.words, True, stream=device.gpu_stream())
    with gpu.record_only(), pytest.raises(RuntimeError, match=f"{M} rows and 1 outputs do not fit"):
        gpu.evaluate(product)


def test_mapped_rows_are_counted_together():
    extension, device = gpu.modules()
    weights = packed(3, 64)
    a = mx.broadcast_to(normal(1, 64), (2**16, 2**16, 64))
    mx.eval(a, weights.scales, weights.biases, weights.words)

    def call(a):
        return extension.quantized_matmul(*weights[:4], a, weights.words, True, stream=device.gpu_stream())

    with gpu.record_only(), pytest.raises(RuntimeError, match=f"{2**32} rows and 3 outputs do not fit"):
        gpu.evaluate(mx.vmap(call)(a))
