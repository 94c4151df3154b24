"""Hidden values never reach the result, NaN included; visible NaN and infinities do."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import flash_attention

from ...support.attention.check import check, expected
from ...support.cases import DTYPE_IDS, DTYPES, lengths, normal, qkv, random_mask
from ...support.tolerance import to_float64

L, S = 70, 131


def poisoned(x, keep, value):
    """x [..., n, E] with `value` in all slots of axis -2 that are not in keep [B, n]."""
    return mx.where(keep[:, None, :, None], x, mx.array(value, dtype=x.dtype))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("rows", [L, 1])
def test_slots_outside_the_valid_range_change_no_bit(rows, dtype, value):
    q, k, v = qkv(L=rows, S=S, dtype=dtype)
    start, n_k, n_q = lengths(7, 0), lengths(64, 33), lengths(rows, max(1, rows // 2))
    options = {"causal": True, "kv_start": start, "kv_lens": n_k, "q_lens": n_q}
    slot = mx.arange(S)
    valid = (slot >= start[:, None]) & (slot < (start + n_k)[:, None])
    real = mx.arange(rows) < n_q[:, None]
    clean = flash_attention(q, k, v, **options, return_lse=True)
    dirty = flash_attention(
        poisoned(q, real, value),
        poisoned(k, valid, value),
        poisoned(v, valid, value),
        **options,
        return_lse=True,
    )
    assert all(mx.array_equal(a, b) for a, b in zip(clean, dirty, strict=True))


def test_slots_outside_the_valid_range_change_no_gradient():
    q, k, v = qkv(L=33, S=65)
    n_k = lengths(40, 65)
    valid = mx.arange(65) < n_k[:, None]

    def gradients(k, v):
        return mx.grad(lambda *x: flash_attention(*x, causal=True, kv_lens=n_k).sum(), (0, 1, 2))(q, k, v)

    for clean, dirty in zip(
        gradients(k, v), gradients(poisoned(k, valid, mx.nan), poisoned(v, valid, mx.nan)), strict=False
    ):
        assert mx.array_equal(clean, dirty)


@pytest.mark.parametrize("hide", ["bool", "float", "causal", "window"])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_nan_in_a_hidden_key_does_not_reach_the_result(dtype, hide):
    q, k, v = qkv(L=L, S=S, dtype=dtype)
    k[..., 77, :] = mx.nan
    keep = mx.broadcast_to(mx.arange(S) != 77, (L, S))
    masks = {"bool": {"mask": keep}, "float": {"mask": mx.where(keep, 0.0, -mx.inf)},
             "causal": {"causal": True}, "window": {"window": 5, "causal": True}}  # fmt: skip
    want = check(q, k, v, **masks[hide])
    assert np.isfinite(want.out[..., 0, :]).all()


NUMBER = 250  # of the key with NaN or infinity, which rows of its own tile do not see, either


def hiding(rows, keys, hide):
    """Options of a call with a mask, a window or positions that hide keys."""
    keep = mx.broadcast_to(mx.arange(keys) != NUMBER, (rows, keys))
    return {"bool": {"mask": keep}, "float": {"mask": mx.where(keep, 0.0, -mx.inf)},
            "causal": {"causal": True}, "window": {"window": (5, 3)},
            "sinks": {"causal": True, "sinks": normal(4, seed=9)}}[hide]  # fmt: skip


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("hide", ["bool", "float", "causal", "window", "sinks"])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("rows", "keys"), [(300, 300), (3, 3000), (1, 300)])
def test_a_hidden_value_changes_no_bit_of_rows_that_do_not_see_it(rows, keys, dtype, hide, value):
    q, k, v = qkv(L=rows, S=keys, dtype=dtype)
    options = hiding(rows, keys, hide)
    dirty = mx.array(v)
    dirty[..., NUMBER, 3] = value
    clean_out, clean_lse = flash_attention(q, k, v, **options, return_lse=True)
    out, lse = flash_attention(q, k, dirty, **options, return_lse=True)
    want = expected(q, k, dirty, **options)
    seen = ~np.isfinite(want.out)
    assert seen.any() == (hide in ("causal", "sinks") or (hide == "window" and rows == 300))
    assert mx.array_equal(lse, clean_lse)
    assert mx.array_equal(mx.where(mx.array(seen), 0, out), mx.where(mx.array(seen), 0, clean_out))
    assert np.array_equal(to_float64(out)[seen], want.out[seen], equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_a_hidden_value_of_a_schedule_with_keys_outside(dtype):
    q, k, v = qkv(L=300, S=300, dtype=dtype)
    v[..., NUMBER, :] = mx.nan
    out = flash_attention(q, k, v, causal=True, schedule="v1")
    assert mx.array_equal(out, flash_attention(q, k, v, causal=True), equal_nan=True)
    assert not mx.isnan(out[..., :NUMBER, :]).any()


def test_a_row_that_sees_no_key_is_zero_beside_hidden_values_of_nan():
    q, k, v = qkv(L=100, S=37)
    v[...] = mx.nan
    want = check(q, k, v, causal=True)
    assert (want.out[..., :63, :] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_a_hidden_key_changes_no_bit(dtype):
    q, k, v = qkv(L=L, S=S, dtype=dtype)
    keep = mx.arange(S) % 3 != 0
    other_k, other_v = (mx.where(keep[:, None], x, -3 * x + 1) for x in (k, v))
    a = flash_attention(q, k, v, mask=keep, return_lse=True)
    b = flash_attention(q, other_k, other_v, mask=keep, return_lse=True)
    assert all(mx.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(("rows", "keys"), [(L, S), (1, 300)])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("which", ["query", "key", "value"])
def test_nan_in_a_visible_input_reaches_the_result(which, dtype, rows, keys):
    inputs = dict(zip(("query", "key", "value"), qkv(L=rows, S=keys, dtype=dtype), strict=True))
    inputs[which][0, 1, 0, 3] = mx.nan
    q, k, v = inputs.values()
    want = check(q, k, v, causal=True)
    assert np.isnan(want.out).any()
    assert not np.isnan(want.out).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_a_row_of_nan_scores_is_nan_not_zero(dtype):
    q, k, v = qkv(L=L, S=S, dtype=dtype)
    q[..., 5, :] = mx.nan
    want = check(q, k, v, mask=random_mask(L, S))
    assert np.isnan(want.out[..., 5, :]).all()
    assert np.isnan(want.lse[..., 5]).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_infinite_values_reach_the_result(dtype):
    q, k, v = qkv(L=L, S=S, dtype=dtype)
    v[0, 0, 0, 2] = mx.inf
    out = to_float64(flash_attention(q, k, v))
    assert (out[0, :2, :, 2] == np.inf).all()
    assert np.isfinite(np.delete(out, 2, axis=-1)).all()
