"""The fast kernel for many query rows against the float64 oracle, in every type."""

import shutil

import mlx.core as mx
import pytest

from ..support.cases import DTYPE_IDS, DTYPES, qkv
from ..support.check import compare
from .cases import HEADS, LENGTHS, MASK_SHAPES, MASK_TYPES, Case
from .flash_attention import run_prefill
from .harness.toolchain import COMPILERS

HEAD_SIZES = [64, 80, 96, 128, 256]
every_type = pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)


@pytest.fixture(autouse=True)
def needs_clang():
    if not shutil.which(COMPILERS["clang"].program):
        pytest.skip("pointers to threadgroup memory need clang++-19")


def check(query, key, value, order=0, **options):
    """The kernel does nothing that is forbidden, and its result is attention; returns the oracle's answer."""
    out, lse, reports = run_prefill(query, key, value, **options, order=order)
    assert reports == []
    return compare(out, lse, query, key, value, **options)


@every_type
@pytest.mark.parametrize("E", HEAD_SIZES)
@pytest.mark.parametrize("causal", [False, True])
def test_every_head_size(dtype, E, causal):
    check(*qkv(L=35, S=70, E=E, dtype=dtype), causal=causal)


@every_type
@pytest.mark.parametrize(("L", "S"), [*LENGTHS, (33, 0)])
def test_lengths(dtype, L, S):
    check(*qkv(batch=(1,), heads=2, kv_heads=1, L=L, S=S, E=64, dtype=dtype), causal=True)


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_grouped_heads(heads, kv_heads):
    check(*qkv(heads=heads, kv_heads=kv_heads, L=9, S=40, E=64, dtype=mx.bfloat16))


@pytest.mark.parametrize("kind", MASK_TYPES)
@pytest.mark.parametrize("shape", MASK_SHAPES, ids=str)
def test_masks(shape, kind):
    case = Case("", 2, 4, 2, 35, 37, 64, causal=kind == "f16", mask_shape=shape, mask_type=kind)
    check(*(x.astype(mx.float16) for x in case.inputs()), **case.options())


@every_type
@pytest.mark.parametrize("order", [1, 2, 3])
def test_no_order_of_the_lanes_makes_a_difference(dtype, order):
    check(*qkv(L=40, S=70, E=80, dtype=dtype), causal=True, order=order)


def test_a_key_that_the_mask_hides_may_be_nan():
    query, key, value = qkv(L=5, S=33, E=64)
    key = mx.where(mx.arange(33)[:, None] == 20, mx.nan, key)
    check(query, key, value, mask=mx.arange(33) != 20)


def test_a_visible_nan_surfaces():
    query, key, value = qkv(batch=(1,), heads=1, kv_heads=1, L=40, S=40, E=64)
    key = mx.where(mx.arange(40)[:, None] == 20, mx.nan, key)
    _, lse, _ = run_prefill(query, key, value, causal=True)
    assert mx.array_equal(mx.isnan(lse[0, 0]), mx.arange(40) >= 20)
