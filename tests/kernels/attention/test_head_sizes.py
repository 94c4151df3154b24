"""Every head size from 1 to 256 has a kernel; other head and value sizes are handled by `on_fallback`."""

import warnings

import mlx.core as mx
import pytest

from tiny_llm.attention import flash_attention

from ...support.attention.check import check, compare
from ...support.cases import DTYPE_IDS, DTYPES, normal, qkv

SIZES = (1, 8, 40, 64, 72, 80, 96, 112, 128, 192, 256)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("E", SIZES)
def test_head_size(E, dtype):
    check(*qkv(batch=(1,), L=70, S=131, E=E, dtype=dtype), causal=True)
    check(*qkv(batch=(1,), L=1, S=300, E=E, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_every_head_size(dtype):
    for E in range(1, 257):
        check(*qkv(batch=(), heads=2, kv_heads=1, L=17, S=33, E=E, dtype=dtype), causal=True)


def too_wide():
    return qkv(L=5, S=9, E=257)


def wider_values():
    q, k, _ = qkv(L=5, S=9, E=16)
    return q, k, normal(2, 2, 9, 24)


@pytest.mark.parametrize("inputs", [too_wide, wider_values])
def test_without_a_kernel_on_fallback_may_be_an_error(inputs):
    text = (
        r"^flash_attention: no fused kernel: .*head size.*; on_fallback='allow' would run attention_reference"
    )
    with pytest.raises(NotImplementedError, match=text):
        flash_attention(*inputs(), on_fallback="error")


def test_without_a_kernel_the_reference_may_run_without_a_warning():
    q, k, v = too_wide()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out, lse = flash_attention(q, k, v, causal=True, return_lse=True, on_fallback="allow")
    compare(out, lse, q, k, v, causal=True)


def test_without_a_kernel_values_of_another_size_are_right():
    q, k, v = wider_values()
    out = flash_attention(q, k, v, on_fallback="allow")
    halves = [flash_attention(q, k, mx.pad(x, [(0, 0)] * 3 + [(0, 4)])) for x in (v[..., :12], v[..., 12:])]
    assert mx.allclose(out, mx.concatenate([x[..., :12] for x in halves], axis=-1), atol=1e-6)
