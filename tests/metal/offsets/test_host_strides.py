"""The host passes strides of any size to the kernels without a copy."""

import mlx.core as mx
import pytest

from ...support.cases import normal, qkv
from ..attention.arguments import FastArguments
from ..host import gpu

pytestmark = [
    pytest.mark.skipif(gpu.IS_REAL, reason="only the recording device accepts arrays of this size"),
    pytest.mark.usefixtures("metal_device"),
]

ARGUMENTS_SLOT = 6
FAR = 2**29  # elements: 3 of them are beyond 31 bits, 8 beyond 32


def sparse(*shape, dtype=mx.float32):
    return gpu.modules()[1].sparse(list(shape), dtype)


def arguments(*inputs, **options):
    """The arguments of the first kernel of a call, and the bytes that were copied for it."""
    with gpu.record_only():
        (first, *_) = gpu.attention(*inputs, **options)[2].dispatches
    return FastArguments.from_buffer_copy(first.arguments[ARGUMENTS_SLOT]), first.copies


def in_struct(strides):
    return tuple(getattr(strides, name) for name, _ in strides._fields_)


@pytest.mark.parametrize("L", [3, 33], ids=["decode", "prefill"])
@pytest.mark.parametrize("name", ["query", "key", "value"])
@pytest.mark.parametrize(
    ("order", "strides"),
    [
        ((0, 1, 2), (2 * FAR * 40, FAR * 40, FAR)),
        ((0, 2, 1), (2 * FAR * 40, FAR, 2 * FAR)),
        ((1, 0, 2), (FAR * 40, 2 * FAR * 40, FAR)),
        ((2, 1, 0), (FAR, 2 * FAR, 4 * FAR)),
    ],
    ids=str,
)
def test_strides_of_query_key_and_value(order, strides, name, L):
    """Views of a larger array with permuted axes, of whose rows 64 columns are used."""
    inputs = dict(zip(("query", "key", "value"), qkv(heads=2, kv_heads=2, L=L, S=40, E=64), strict=True))
    sizes = inputs[name].shape[:3]
    parent = sparse(*([2, 2, 40][axis] for axis in order), FAR, dtype=mx.float32)
    back = [order.index(axis) for axis in range(3)]
    inputs[name] = parent[..., :64].transpose(*back, 3)[:, :, : sizes[2]]
    found, copies = arguments(*inputs.values())
    assert in_struct(getattr(found, name)) == strides
    assert copies == 0


@pytest.mark.parametrize("L", [3, 33], ids=["decode", "prefill"])
@pytest.mark.parametrize("dtype", [mx.bool_, mx.float32, mx.float16, mx.bfloat16], ids=str)
def test_strides_of_a_mask(dtype, L):
    """A mask [2, 2, L, 40] with large strides on every axis."""
    mask = sparse(2, 2, L, 40, FAR // 16, dtype=dtype)[..., 7]
    found, copies = arguments(*qkv(heads=2, kv_heads=2, L=L, S=40, E=64), mask=mask)
    key = FAR // 16
    assert in_struct(found.mask) == (2 * L * 40 * key, L * 40 * key, 40 * key, key)
    assert copies == 0


@pytest.mark.parametrize("dtype", [mx.int32, mx.int64], ids=str)
@pytest.mark.parametrize(
    ("apart", "copied"), [(2**29, False), (2**30 - 2**20, False), (2**30, True), (2**33, True)]
)
def test_lengths_are_copied_where_their_stride_exceeds_32_bits(apart, copied, dtype):
    kv_lens = sparse(3, apart // 2**20, 2**20, dtype=dtype)[:, 0, 0]
    inputs = qkv(batch=(3,), heads=2, kv_heads=2, L=3, S=40, E=64)
    words = dtype.size // 4
    found, copies = arguments(*inputs, kv_lens=kv_lens)
    assert found.kv_lens.stride == (words if copied else words * apart)
    assert copies == (3 * dtype.size if copied else 0)


def test_strides_of_mapped_sinks():
    extension, device = gpu.modules()
    query, key, value = qkv(batch=(2,), heads=2, kv_heads=1, L=3, S=40, E=64)
    sinks = sparse(2, 2, FAR)[..., 5]
    mx.eval(query, key, value, sinks)

    def call(query, key, value, sinks):
        return extension.attention(query, key, value, sinks=sinks, stream=device.gpu_stream())

    outputs = mx.vmap(call)(query, key, value, sinks)
    with gpu.record_only():
        (dispatch,) = gpu.evaluate(*outputs).dispatches
    found = FastArguments.from_buffer_copy(dispatch.arguments[ARGUMENTS_SLOT])
    assert (found.sinks_batch, found.sinks_head) == (2 * FAR, FAR)


def test_a_sparse_array_is_zero_and_shares_its_memory():
    array = sparse(4, FAR)
    assert mx.array_equal(array[:, 5] + normal(4), normal(4))
