"""Any number of queries and keys: below, at and above tile sizes, equal or not, many or one."""

import pytest

from ...support.attention.check import check
from ...support.cases import DTYPE_IDS, DTYPES, qkv

SQUARE = (0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 1000)
OBLONG = ((8, 12), (33, 65), (40, 17), (1, 100), (70, 131), (257, 300), (300, 257), (1, 257), (5, 0))
SPECULATIVE = (2, 8, 9, 16, 33, 64)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("length", SQUARE)
def test_as_many_queries_as_keys(length, dtype, causal):
    check(*qkv(batch=(1,), heads=2, kv_heads=1, L=length, E=64, dtype=dtype), causal=causal)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("L", "S"), OBLONG)
def test_the_last_query_is_aligned_with_the_last_key(L, S, dtype, causal):
    check(*qkv(L=L, S=S, E=48, dtype=dtype), causal=causal)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_one_query_over_a_very_long_cache(dtype):
    check(*qkv(batch=(1,), heads=4, kv_heads=2, L=1, S=40000, E=64, dtype=dtype), causal=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("L", SPECULATIVE)
def test_a_few_queries_over_a_long_cache(L, dtype):
    check(*qkv(batch=(1,), heads=8, kv_heads=1, L=L, S=4096, E=32, dtype=dtype), causal=True)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_no_batch_is_an_empty_result(causal):
    check(*qkv(batch=(0,), L=33, S=65), causal=causal)


def test_the_mask_may_be_the_word_causal():
    check(*qkv(L=33, S=65), mask="causal")
