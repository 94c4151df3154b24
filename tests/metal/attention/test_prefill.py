"""The prefill kernel against the float64 oracle, in every type."""

import pytest

from ...support.attention.check import compare
from ...support.cases import DTYPE_IDS, DTYPES, qkv
from .fast_cases import PREFILL_CASES
from .run import FastCall, fast_kernels, run_prefill


def check(query, key, value, layout="dense", order=0, **options):
    """The harness reports nothing, and the result is attention."""
    out, lse, reports = run_prefill(query, key, value, **options, layout=layout, order=order)
    assert reports == []
    compare(out, lse, query, key, value, **options)


@pytest.mark.parametrize("case", PREFILL_CASES, ids=lambda case: case.name)
def test_the_kernel_computes_attention(case):
    check(*case.inputs(), **case.options(), **case.settings())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("L", [15, 16, 17, 31, 63, 64, 127, 129, pytest.param(1000, marks=pytest.mark.slow)])
def test_as_many_rows_as_keys(L, causal):
    check(*qkv(batch=(1,), heads=1, kv_heads=1, L=L, E=64), causal=causal)


def test_the_cases_run_every_kernel():
    found = {FastCall(*case.inputs()).launch("prefill").kernel for case in PREFILL_CASES}
    assert found == fast_kernels("attention_prefill_")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("window", [None, 100])
def test_the_heads_of_a_model(dtype, window):
    """14 query heads on 2 key/value heads, several tiles."""
    check(*qkv(batch=(1,), heads=14, kv_heads=2, L=200, S=300, E=64, dtype=dtype), causal=True, window=window)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [1, 4, 7, 8, 63, 64, 65, 260])
def test_windows_over_many_tiles(window, causal):
    check(*qkv(batch=(1,), heads=1, kv_heads=1, L=260, E=64), causal=causal, window=window)
