"""Soft-capped scores and attention sinks, alone, together, and with other options."""

import mlx.core as mx
import numpy as np
import pytest

from ...support.attention.check import check
from ...support.cases import DTYPE_IDS, DTYPES, lengths, normal, qkv, random_mask


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("softcap", [0.5, 5.0, 50.0])
@pytest.mark.parametrize(("L", "S"), [(70, 131), (1, 300), (1, 3000)])
def test_softcap(L, S, softcap, dtype):
    check(*qkv(L=L, S=S, dtype=dtype), scale=1.0, softcap=softcap, causal=True)


def test_softcap_comes_before_the_mask():
    check(*qkv(L=70, S=131), scale=1.0, softcap=2.0, mask=10 * normal(70, 131, seed=9))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("sink_dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("L", "S"), [(70, 131), (1, 300), (1, 3000)])
def test_sinks(L, S, sink_dtype, dtype):
    check(*qkv(L=L, S=S, dtype=dtype), sinks=normal(4, dtype=sink_dtype, seed=5) * 2, causal=True)


@pytest.mark.parametrize(("L", "S"), [(70, 131), (9, 4096), (1, 4096)])
def test_sinks_with_softcap_window_mask_and_groups(L, S):
    check(
        *qkv(heads=6, kv_heads=2, L=L, S=S), sinks=normal(6, seed=5), softcap=3.0, window=S // 2, causal=True,
        mask=random_mask(L, S),
    )  # fmt: skip


@pytest.mark.parametrize("size", [-200.0, 200.0])
def test_sinks_far_from_the_scores(size):
    check(*qkv(L=33, S=65), sinks=mx.full((4,), size))


def test_infinite_sinks():
    """A sink of -inf is none; the other heads keep theirs."""
    check(*qkv(L=33, S=65), sinks=mx.array([0.0, -mx.inf, 1.0, -mx.inf]))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("L", "S"), [(70, 131), (2, 300), (2, 3000), (1, 300), (1, 3000)])
def test_a_row_that_sees_neither_a_key_nor_a_sink(L, S, dtype):
    """A sink of -inf is none there, too: zeros, and a log-sum-exp of -inf."""
    inputs, sinks = qkv(L=L, S=S, dtype=dtype), mx.array([-mx.inf, 0.5, -mx.inf, -mx.inf])
    keep = mx.arange(L)[:, None] % 2 == 1
    for hide in (
        {"kv_lens": lengths(0, S)},
        {"mask": mx.broadcast_to(keep, (L, S))},
        {"mask": mx.where(keep, mx.zeros(S), -mx.inf)},
    ):
        want = check(*inputs, sinks=sinks, **hide)
        assert (want.out[0, :, 0] == 0).all()
        np.testing.assert_array_equal(want.lse[0, :, 0], np.array(sinks))


def test_a_row_that_sees_only_its_sink():
    sinks = normal(4, seed=5)
    want = check(*qkv(L=33, S=0), sinks=sinks)
    assert (want.out == 0).all()
    np.testing.assert_array_equal(want.lse, np.broadcast_to(np.array(sinks)[:, None], (2, 4, 33)))
    check(*qkv(L=70, S=33), sinks=sinks, causal=True)
    check(*qkv(L=33, S=65), sinks=sinks, kv_lens=lengths(0, 65))


def test_padding_rows_have_no_sink():
    want = check(*qkv(L=33, S=65), sinks=normal(4, seed=5), q_lens=lengths(5, 33))
    assert (want.lse[0, :, 5:] == -np.inf).all()
