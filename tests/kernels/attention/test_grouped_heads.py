"""Query head h reads KV head h // (Hq / Hkv); keys are never repeated in memory."""

import mlx.core as mx
import pytest

from tiny_llm.attention import flash_attention

from ...support.attention.check import check
from ...support.cases import DTYPE_IDS, DTYPES, qkv
from ...support.refusal import refused


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("L", "S"), [(70, 131), (1, 300)])
@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 8), (8, 4), (8, 2), (8, 1), (16, 2), (14, 2), (9, 3)])
def test_heads_of_a_gqa_group_share_a_kv_head(heads, kv_heads, L, S, dtype):
    check(*qkv(heads=heads, kv_heads=kv_heads, L=L, S=S, dtype=dtype), causal=True)


def test_grouped_equals_repeated():
    q, k, v = qkv(heads=6, kv_heads=2, L=70, S=131)
    grouped = flash_attention(q, k, v, causal=True)
    repeated = flash_attention(q, mx.repeat(k, 3, axis=1), mx.repeat(v, 3, axis=1), causal=True)
    assert mx.allclose(grouped, repeated, rtol=0, atol=2e-6)


def test_head_counts_that_do_not_divide_are_refused():
    with refused("query"):
        flash_attention(*qkv(heads=6, kv_heads=4))
