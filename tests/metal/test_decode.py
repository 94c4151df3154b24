"""The fast kernel for a few query rows, whole and split, against the float64 oracle in every type."""

import shutil

import mlx.core as mx
import pytest

from ..support.cases import DTYPE_IDS, DTYPES, qkv
from ..support.check import compare
from .cases import HEADS, MASK_SHAPES, MASK_TYPES, Case
from .arguments import UNBOUNDED as WHOLE
from .flash_attention import run_decode
from .harness.toolchain import COMPILERS

every_type = pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
whole_and_split = pytest.mark.parametrize("keys_per_split", [WHOLE, 24], ids=["whole", "split"])


@pytest.fixture(autouse=True)
def needs_clang():
    if not shutil.which(COMPILERS["clang"].program):
        pytest.skip("pointers to threadgroup memory need clang++-19")


def check(query, key, value, order=0, keys_per_split=WHOLE, **options):
    """The kernels do nothing that is forbidden, and their result is attention."""
    out, lse, reports = run_decode(query, key, value, **options, order=order, keys_per_split=keys_per_split)
    assert reports == []
    return compare(out, lse, query, key, value, **options)


@every_type
@whole_and_split
@pytest.mark.parametrize("E", [64, 80, 96, 128, 256])
def test_every_head_size(dtype, keys_per_split, E):
    check(*qkv(L=1, S=70, E=E, dtype=dtype), keys_per_split=keys_per_split)


@every_type
@whole_and_split
@pytest.mark.parametrize(("L", "S"), [(1, 0), (1, 1), (1, 7), (8, 8), (8, 100), (8, 5), (3, 257)])
def test_lengths(dtype, keys_per_split, L, S):
    """Some splits hold no key, some rows see none."""
    check(
        *qkv(batch=(1,), heads=2, kv_heads=1, L=L, S=S, E=64, dtype=dtype),
        causal=True,
        keys_per_split=keys_per_split,
    )


@whole_and_split
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_grouped_heads(heads, kv_heads, keys_per_split):
    check(
        *qkv(heads=heads, kv_heads=kv_heads, L=2, S=40, E=64, dtype=mx.bfloat16),
        keys_per_split=keys_per_split,
    )


@pytest.mark.parametrize("kind", MASK_TYPES)
@pytest.mark.parametrize("shape", MASK_SHAPES, ids=str)
def test_masks(shape, kind):
    case = Case("", 2, 4, 2, 35, 37, 64, causal=kind == "f16", mask_shape=shape, mask_type=kind)
    check(*(x.astype(mx.float16) for x in case.inputs()), **case.options(), keys_per_split=24)


@whole_and_split
@pytest.mark.parametrize("order", [1, 2])
def test_no_order_of_the_lanes_makes_a_difference(order, keys_per_split):
    check(*qkv(L=4, S=70, E=80), causal=True, order=order, keys_per_split=keys_per_split)


@whole_and_split
def test_a_visible_nan_surfaces(keys_per_split):
    query, key, value = qkv(batch=(1,), heads=1, kv_heads=1, L=8, S=40, E=64)
    key = mx.where(mx.arange(40)[:, None] == 36, mx.nan, key)
    _, lse, _ = run_decode(query, key, value, causal=True, keys_per_split=keys_per_split)
    assert mx.array_equal(mx.isnan(lse[0, 0]), mx.arange(8) >= 4)
