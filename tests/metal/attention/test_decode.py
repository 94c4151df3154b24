"""The decode kernel, with one split and several, against the float64 oracle in every type."""

import mlx.core as mx
import pytest

from ...support.attention.check import compare
from ...support.cases import DTYPE_IDS, DTYPES, qkv
from .arguments import UNBOUNDED as WHOLE
from .fast_cases import DECODE_CASES, HEAD_SIZES
from .run import FastCall, fast_kernels, run_decode


def check(query, key, value, layout="dense", order=0, keys_per_split=WHOLE, **options):
    """The harness reports nothing, and the result is attention."""
    settings = {"layout": layout, "order": order, "keys_per_split": keys_per_split}
    out, lse, reports = run_decode(query, key, value, **options, **settings)
    assert reports == []
    compare(out, lse, query, key, value, **options)


@pytest.mark.parametrize("case", DECODE_CASES, ids=lambda case: case.name)
def test_the_kernels_compute_attention(case):
    check(*case.inputs(), **case.options(), **case.settings(), keys_per_split=case.keys_per_split)


# The cases cover pairs of options, not every kernel; this does.
@pytest.mark.parametrize("keys_per_split", [WHOLE, 24], ids=["whole", "split"])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("E", HEAD_SIZES)
def test_every_kernel(E, dtype, keys_per_split):
    check(*qkv(batch=(1,), heads=1, kv_heads=1, L=1, S=50, E=E, dtype=dtype), keys_per_split=keys_per_split)


def test_those_are_all_decode_and_merge_kernels():
    found = set()
    for dtype in DTYPES:
        for E in HEAD_SIZES:
            inputs = qkv(batch=(1,), heads=1, kv_heads=1, L=1, S=50, E=E, dtype=dtype)
            calls = FastCall(*inputs), FastCall(*inputs, keys_per_split=24)
            found |= {call.launch("decode").kernel for call in calls} | {calls[1].launch("merge").kernel}
    assert found == fast_kernels("attention_decode_") | fast_kernels("attention_merge_")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("keys_per_split", [WHOLE, 512])
def test_many_keys(dtype, keys_per_split):
    """With 512 keys per split there are four splits, the last of one key."""
    inputs = qkv(batch=(1,), heads=2, kv_heads=1, L=2, S=1537, E=64, dtype=dtype)
    check(*inputs, causal=True, keys_per_split=keys_per_split)


def test_a_single_row_over_forty_thousand_keys():
    check(*qkv(batch=(1,), heads=1, kv_heads=1, L=1, S=40000, E=64, dtype=mx.float16), keys_per_split=512)
