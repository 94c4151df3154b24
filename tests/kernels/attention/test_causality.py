"""A row depends on no later token: changing a token leaves every earlier row bitwise equal."""

import mlx.core as mx
import pytest

from tiny_llm.attention import flash_attention

from ...support.cases import DTYPE_IDS, DTYPES, qkv


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("token", [0, 1, 31, 32, 33, 63, 64, 100, 129])
def test_changing_a_token_changes_only_later_rows(token, dtype):
    q, k, v = qkv(L=130, dtype=dtype)
    before = flash_attention(q, k, v, causal=True, return_lse=True)
    for x in (q, k, v):
        x[..., token, :] = 2 * x[..., token, :] + 1
    after = flash_attention(q, k, v, causal=True, return_lse=True)
    for x, y in zip(before, after, strict=True):
        assert mx.array_equal(x[:, :, :token], y[:, :, :token])
        assert not mx.array_equal(x[:, :, token], y[:, :, token])


def test_changing_a_sequence_changes_no_other_sequence():
    q, k, v = qkv(batch=(3,), L=70)
    before = flash_attention(q, k, v)
    for x in (q, k, v):
        x[1] = 2 * x[1] + 1
    after = flash_attention(q, k, v)
    assert [mx.array_equal(before[b], after[b]).item() for b in range(3)] == [True, False, True]
