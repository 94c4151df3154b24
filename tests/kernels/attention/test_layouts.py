"""Any rank from 3, any strides, shared and donated inputs: the same result as with contiguous copies."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import flash_attention

from ...support.attention.check import check
from ...support.cases import DTYPE_IDS, DTYPES, normal, qkv


@pytest.mark.parametrize(("L", "S"), [(33, 65), (1, 300)])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (2, 1, 2)], ids=["rank3", "rank4", "rank5", "rank6"])
def test_rank(batch, L, S):
    check(*qkv(batch=batch, L=L, S=S), causal=True)


def sequence_first(x):
    """The layout of a projection's output: [B, L, H, E] in memory."""
    return mx.contiguous(mx.swapaxes(x, 1, 2)).swapaxes(1, 2)


def head_size_first(x):
    """The last axis is not contiguous."""
    return mx.contiguous(mx.swapaxes(x, -1, -2)).swapaxes(-1, -2)


def every_second_row(x):
    return mx.contiguous(mx.repeat(x, 2, axis=-2))[..., ::2, :]


def every_second_column(x):
    return mx.contiguous(mx.repeat(x, 2, axis=-1))[..., ::2]


def inside_a_larger_cache(x):
    """A slice of a larger array of NaN: a read outside the slice gives NaN."""
    return mx.pad(x, [(1, 1)] * x.ndim, constant_values=mx.nan)[1:-1, 1:-1, 1:-1, 1:-1]


def backwards(x):
    return mx.contiguous(x[:, ::-1, ::-1])[:, ::-1, ::-1]


LAYOUTS = (
    sequence_first,
    head_size_first,
    every_second_row,
    every_second_column,
    inside_a_larger_cache,
    backwards,
)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("L", "S"), [(70, 131), (1, 300)])
def test_layout(L, S, layout, dtype):
    packed = qkv(L=L, S=S, dtype=dtype)
    strided = [layout(x) for x in packed]
    assert all(mx.array_equal(a, b) for a, b in zip(packed, strided, strict=True))
    check(*strided, causal=True)
    same = mx.array_equal(flash_attention(*packed, causal=True), flash_attention(*strided, causal=True))
    assert same, "the layout changed the result"


def test_a_batch_broadcast_by_stride():
    q, _, _ = qkv(batch=(3,), L=33, S=65)
    _, k, v = qkv(batch=(1,), L=33, S=65)
    check(q, *(mx.broadcast_to(x, (3, *x.shape[1:])) for x in (k, v)))


def test_one_array_as_query_key_and_value():
    x = normal(2, 4, 70, 32)
    check(x, x, x, causal=True)


def test_donated_inputs_are_not_overwritten_early():
    """MLX may give the memory of an unused input to an output; the kernel must not read it afterwards."""
    for L, S in ((70, 70), (1, 300)):
        q, k, v = qkv(L=L, S=S, kv_heads=4)
        want = flash_attention(q + 1, k + 1, v + 1)
        mx.eval(want)
        held = flash_attention(*(mx.array(np.array(x)) + 1 for x in (q, k, v)))
        assert mx.array_equal(held, want)


def test_inputs_are_not_changed():
    inputs = qkv(L=70, S=131)
    before = [np.array(x) for x in inputs]
    mx.eval(flash_attention(*inputs, causal=True))
    assert all(np.array_equal(a, b) for a, b in zip(before, inputs, strict=True))
