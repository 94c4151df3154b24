"""Bool and float masks of every broadcastable shape and stride, read in place."""

import mlx.core as mx
import pytest

from tiny_llm.attention import flash_attention

from ...support.attention.check import check
from ...support.cases import DTYPE_IDS, DTYPES, normal, qkv, random_mask
from ...support.refusal import refused

B, HEADS, L, S = 2, 4, 70, 131
SHAPES = ((L, S), (S,), (), (L, 1), (1, S), (1, 1, 1, S), (B, 1, 1, S), (B, 1, L, S), (1, HEADS, L, 1),
          (1, HEADS, 1, S), (HEADS, 1, 1), (B, HEADS, L, S))  # fmt: skip
KINDS = {"bool": mx.bool_, "f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}


def mask_of(kind, shape):
    """Random; a float mask hides a fifth of the keys by -inf."""
    if kind == "bool":
        return random_mask(*shape)
    return mx.where(random_mask(*shape, keep=0.8), normal(*shape, seed=7), -mx.inf).astype(KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shape(shape, kind):
    check(*qkv(L=L, S=S), mask=mask_of(kind, shape))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("kind", KINDS)
def test_mask_dtype_is_independent_of_input_dtype(kind, dtype):
    check(*qkv(L=L, S=S, dtype=dtype), mask=mask_of(kind, (B, 1, L, S)))
    check(*qkv(L=1, S=300, dtype=dtype), mask=mask_of(kind, (B, 1, 1, 300)))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("kind", ["bool", "f32"])
@pytest.mark.parametrize("rows", [L, 3, 1])
def test_each_query_head_of_a_group_may_have_its_own_mask(rows, kind, dtype):
    """Also where few rows share the lanes of a vector, and where the mask is the same for all rows."""
    inputs = qkv(heads=6, kv_heads=2, L=rows, S=S, dtype=dtype)
    for shape in ((6, 1, S), (1, 6, rows, S), (B, 6, 1, S), (B, 6, rows, 1)):
        check(*inputs, mask=mask_of(kind, shape))


@pytest.mark.parametrize("kind", ["bool", "f32", "bf16"])
def test_strides(kind):
    q, k, v = qkv(L=L, S=S)
    transposed = mx.swapaxes(mask_of(kind, (B, HEADS, S, L)), -1, -2)
    every_second = mask_of(kind, (B, HEADS, L, 2 * S))[..., ::2]
    backwards = mask_of(kind, (L, S))[:, ::-1]
    expanded = mx.broadcast_to(mask_of(kind, (1, 1, 1, S)), (B, HEADS, L, S))
    sliding = mx.as_strided(mask_of(kind, (L + S,)), (L, S), (1, 1))
    for mask in (transposed, every_second, backwards, expanded, sliding):
        check(q, k, v, mask=mask)


def test_a_mask_is_combined_with_causal_window_and_lengths():
    q, k, v = qkv(L=L, S=S)
    for kind in ("bool", "f32"):
        mask = mask_of(kind, (B, 1, L, S))
        check(q, k, v, mask=mask, causal=True)
        check(q, k, v, mask=mask, window=20)
        check(
            q, k, v, mask=mask, causal=True, window=20, kv_start=mx.array([3, 0]), kv_lens=mx.array([90, 131])
        )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinity_in_a_mask_reach_the_result(value):
    mask = mx.zeros((L, S))
    mask[5, 7] = value
    want = check(*qkv(L=L, S=S), mask=mask)
    assert (want.out != want.out)[..., 5, :].all()
    assert not (want.out != want.out)[..., 6:, :].any()


@pytest.mark.parametrize("dtype", [mx.int32, mx.uint8, mx.int64, mx.float64, mx.complex64], ids=str)
def test_other_mask_dtypes_are_refused(dtype):
    with refused("mask"):
        flash_attention(*qkv(L=L, S=S), mask=mx.ones((L, S), dtype=dtype))


def peak_memory(**options):
    q, k, v = qkv(batch=(1,), heads=2, kv_heads=2, L=1024, S=1024, E=64)
    mx.eval(q, k, v, *options.values())
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    mx.eval(flash_attention(q, k, v, **options, on_fallback="error"))
    return mx.get_peak_memory() - before


def test_a_broadcast_mask_costs_no_memory():
    assert abs(peak_memory(mask=random_mask(1, 1, 1, 1024)) - peak_memory()) <= 1 << 20
    expanded = mx.broadcast_to(mx.zeros((1, 1, 1, 1024)), (1, 2, 1024, 1024))
    assert abs(peak_memory(mask=expanded) - peak_memory()) <= 1 << 20
