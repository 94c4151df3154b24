"""A row with a sliding window of W keys sees exactly W keys, however long the prompt."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import flash_attention

from ...support.attention.check import check
from ...support.cases import DTYPE_IDS, DTYPES, lengths, qkv

WIDTHS = (1, 4, 7, 8, 63, 64, 65, 300)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("L", "S"), [(260, 260), (130, 260), (260, 130), (1, 260)])
def test_window(L, S, width, causal):
    check(*qkv(batch=(1,), L=L, S=S), window=width, causal=causal)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("window", [(0, 0), (3, 5), (-1, 2), (2, -1), (-1, -1), (0, 70)], ids=str)
def test_two_sided_window(window, dtype):
    check(*qkv(L=70, S=131, dtype=dtype), window=window)
    check(*qkv(L=70, S=131, dtype=dtype), window=window, causal=True)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("width", [1, 7, 8, 64, 65])
def test_a_row_sees_exactly_that_many_keys(width, causal):
    """With equal scores and one-hot values the output of a row shows the keys it sees."""
    n = 4 * width + 40
    q = k = mx.zeros((1, n, 4))
    for key in (n // 2, n - 1):
        v = mx.zeros((1, n, 4))
        v[0, key] = 1
        out = np.array(flash_attention(q, k, v, window=width, causal=causal))[0, :, 0]
        rows = np.flatnonzero(out)
        left, right = (width - 1, 0) if causal else (width // 2, (width - 1) // 2)
        assert rows.tolist() == list(range(max(0, key - right), min(n, key + left + 1)))
        inner = [row for row in rows if left <= row < n - right]
        np.testing.assert_allclose(out[inner], 1 / width, rtol=1e-6)


def test_window_with_lengths_and_starts():
    check(
        *qkv(batch=(3,), L=70, S=131), window=9, causal=True,
        q_lens=lengths(70, 3, 40), kv_start=lengths(0, 50, 31), kv_lens=lengths(131, 20, 64),
    )  # fmt: skip


def test_a_window_on_a_long_prompt():
    q, k, v = qkv(batch=(), heads=1, kv_heads=1, L=2100, S=2100, E=16)
    want = check(q, k, v, window=512, causal=True)
    full = flash_attention(q, k, v, causal=True)
    assert np.abs(np.array(full)[0, -1] - want.out[0, -1]).max() > 1e-3
