"""A row that sees no key is exactly 0 with LSE = -inf, however its keys are hidden; other rows are right."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import flash_attention

from ...support.attention.check import check
from ...support.cases import DTYPE_IDS, DTYPES, lengths, qkv
from ...support.native import DEVICE, last_run
from ...support.tolerance import to_float64

L, S = 70, 131
HIDDEN = (0, 3, 40, 69)


def rows_hidden_by(kind):
    """A mask [L, S] that hides every key from the rows HIDDEN."""
    keep = np.ones((L, S), bool)
    keep[list(HIDDEN)] = False
    return mx.array(keep) if kind == "bool" else mx.where(mx.array(keep), 0.0, -mx.inf)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_rows_hidden_by_a_mask(kind, dtype):
    want = check(*qkv(L=L, S=S, dtype=dtype), mask=rows_hidden_by(kind))
    assert (want.lse[..., HIDDEN] == -np.inf).all()
    assert np.isfinite(np.delete(want.lse, HIDDEN, axis=-1)).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("first", [32, 40, 64, 100])
def test_rows_whose_first_keys_are_hidden_and_later_ones_are_not(first, dtype):
    keep = mx.broadcast_to(mx.arange(S) >= first, (L, S))
    check(*qkv(L=L, S=S, dtype=dtype), mask=keep)
    check(*qkv(L=L, S=S, dtype=dtype), mask=mx.where(keep, 0.0, -mx.inf))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_causal_rows_before_the_first_key(dtype):
    want = check(*qkv(L=100, S=37, dtype=dtype), causal=True)
    assert (want.lse[..., :63] == -np.inf).all()
    assert np.isfinite(want.lse[..., 63:]).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("sinks", [None, mx.array([0.0, -mx.inf])], ids=["no sinks", "sinks"])
def test_rows_that_see_nothing_in_some_parts_of_split_keys(sinks, kind, dtype):
    """Eight rows see each selection of three chunks of keys, the first none."""
    keep = mx.arange(8)[:, None] // 2 ** (mx.arange(370) // 128) % 2 == 1
    mask = keep if kind == "bool" else mx.where(keep, 0.0, -mx.inf)
    want = check(*qkv(heads=2, kv_heads=2, L=8, S=370, dtype=dtype), mask=mask, sinks=sinks)
    assert (want.out[..., 0, :] == 0).all()
    if mx.cpu == DEVICE:
        assert last_run()["splits"] == 3


def test_rows_that_a_window_leaves_empty():
    want = check(*qkv(L=100, S=37), window=(2, 0))
    assert (want.lse[..., :63] == -np.inf).all()


def test_a_sequence_without_keys():
    want = check(*qkv(L=L, S=S), kv_lens=lengths(0, 50))
    assert (want.lse[0] == -np.inf).all()
    assert np.isfinite(want.lse[1]).all()


def test_rows_whose_every_score_is_minus_infinity():
    q, k, v = qkv(L=33, S=65)
    q = mx.abs(q)
    k = mx.where(mx.arange(32) == 0, -mx.inf, k)
    want = check(q, k, v)
    assert (want.lse == -np.inf).all()
    assert (want.out == 0).all()


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_gradients_are_finite_and_zero_for_hidden_rows(kind):
    q, k, v = qkv(L=L, S=S)
    mask = rows_hidden_by(kind)
    grads = mx.grad(lambda *x: flash_attention(*x, mask=mask).square().sum(), argnums=(0, 1, 2))(q, k, v)
    dq, dk, dv = map(to_float64, grads)
    assert all(np.isfinite(g).all() for g in (dq, dk, dv))
    assert (dq[:, :, list(HIDDEN)] == 0).all()
    assert (np.delete(dq, HIDDEN, axis=2) != 0).any()
