"""The readable kernel against the float64 oracle, with every memory access checked."""

import mlx.core as mx
import numpy as np
import pytest

from ...support.attention.check import compare
from ...support.cases import normal, qkv, with_nan
from ...support.tolerance import to_float64
from ..harness.toolchain import COMPILERS, THREADGROUP_MEMORY
from .readable_cases import CASES
from .run import readable_kernel, run_readable


def check(*inputs, order=0, kernel=None, **options):
    """The harness reports nothing, and the result is attention; returns the oracle's answer."""
    out, lse, reports = run_readable(*inputs, **options, order=order, kernel=kernel)
    assert reports == []
    return compare(out, lse, *inputs, **options)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_kernel_computes_attention(case):
    check(*case.inputs(), **case.options())


@pytest.mark.parametrize("order", [1, 2, 3], ids=["backwards", "shuffled", "shuffled again"])
@pytest.mark.parametrize("causal", [False, True])
def test_the_result_does_not_depend_on_the_order_of_the_lanes(order, causal):
    inputs = qkv(L=40, S=70, E=80)
    as_numbered = run_readable(*inputs, causal=causal)
    other = run_readable(*inputs, causal=causal, order=order)
    assert other.reports == []
    assert mx.array_equal(as_numbered.out, other.out)
    assert mx.array_equal(as_numbered.lse, other.lse)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_compiler_gives_attention(compiler):
    check(*qkv(L=40, S=70, E=100), causal=True, kernel=readable_kernel(compiler))


def test_the_kernel_uses_all_threadgroup_memory():
    assert readable_kernel().threadgroup_bytes == THREADGROUP_MEMORY


def test_without_keys_the_output_is_zero():
    check(*qkv(L=33, S=0))


def test_rows_that_see_no_key_are_zero():
    """Causality leaves the first L - S rows without keys."""
    want = check(*qkv(L=70, S=33), causal=True)
    assert (want.lse[..., :37] == -np.inf).all()
    assert np.isfinite(want.lse[..., 37:]).all()


def test_keys_beyond_the_causal_edge_are_not_read():
    """NaN in them does not reach a row, not even as 0 * NaN."""
    query, key, value = qkv(heads=1, kv_heads=1, L=70, S=70)
    last = 40
    poisoned = [with_nan(x, mx.arange(70) > last) for x in (key, value)]
    clean = run_readable(query, key, value, causal=True)
    out, lse, reports = run_readable(query, *poisoned, causal=True)
    assert reports == []
    assert mx.array_equal(out[..., : last + 1, :], clean.out[..., : last + 1, :])
    assert mx.array_equal(lse[..., : last + 1], clean.lse[..., : last + 1])
    assert mx.all(mx.isnan(out[..., last + 1 :, :]))


@pytest.mark.parametrize("hide", [False, -np.inf], ids=["bool", "float"])
def test_a_key_that_the_mask_hides_may_be_nan(hide):
    query, key, value = qkv()
    hidden = mx.arange(33) == 5
    key = mx.where(hidden[:, None], mx.nan, key)
    mask = mx.where(hidden, hide, mx.array(True) if hide is False else 0.0)
    check(query, key, value, mask=mask)
    check(query, key, with_nan(value, hidden), mask=mask)


def test_a_visible_nan_reaches_the_result():
    query, key, value = qkv(batch=(1,), heads=1, kv_heads=1, L=40, S=40)
    key = mx.where(mx.arange(40)[:, None] == 20, mx.nan, key)
    out, lse, _ = run_readable(query, key, value, causal=True)
    seen = mx.arange(40) >= 20
    assert mx.array_equal(mx.isnan(lse[0, 0]), seen)
    assert mx.array_equal(mx.all(mx.isnan(out[0, 0]), axis=-1), seen)


def test_a_row_of_nan_scores_is_nan():
    query, key, value = qkv(L=2, S=64)
    out, lse, _ = run_readable(query * mx.nan, key, value)
    assert mx.all(mx.isnan(out))
    assert mx.all(mx.isnan(lse))


@pytest.mark.parametrize("entry", [np.inf, np.nan], ids=str)
def test_a_mask_of_nan_or_infinity_gives_nan(entry):
    out, _, _ = run_readable(*qkv(L=2, S=40), mask=mx.where(mx.arange(40) == 35, entry, 0.0))
    assert mx.all(mx.isnan(out))


def test_a_mask_of_large_negative_numbers_hides_nothing():
    check(*qkv(L=5, S=40), mask=mx.full((40,), -1e30))


@pytest.mark.parametrize("step", [3.0, -3.0], ids=["rises", "falls"])
def test_the_running_maximum_may_change_in_every_tile(step):
    """From tile to tile the scores change by 96: without rescaling, the result would be wrong or infinite."""
    query = mx.ones((1, 1, 3, 32))
    key = mx.broadcast_to(step * mx.arange(130.0)[:, None], (130, 32))[None, None] + normal(1, 1, 130, 32)
    check(query, key, normal(1, 1, 130, 32, seed=1), scale=1 / 32)


def test_the_result_has_the_same_bits_each_time():
    inputs = qkv(L=40, S=70)
    first, second = (run_readable(*inputs, causal=True) for _ in range(2))
    assert np.array_equal(to_float64(first.out), to_float64(second.out))
    assert np.array_equal(to_float64(first.lse), to_float64(second.lse))
