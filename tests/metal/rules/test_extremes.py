"""Scores near the limits of float32 or far beyond the soft cap; sequences that begin after the last key."""

import mlx.core as mx
import numpy as np
import pytest

from ...support.attention.check import compare
from ...support.cases import lengths, normal, qkv
from .kernels import ALL, FAST, run_clean

LOWEST = float(np.finfo(np.float32).min)
every_kernel = pytest.mark.parametrize("kernel", ALL)
every_fast_kernel = pytest.mark.parametrize("kernel", FAST)


def check(kernel, inputs, options):
    compare(*run_clean(kernel, *inputs, **options), *inputs, **options)


@every_kernel
@pytest.mark.parametrize("entry", [LOWEST, 0.99 * LOWEST, 0.5 * LOWEST, -1e38, -1e30, -65504.0])
@pytest.mark.parametrize("where", ["everywhere", "first tile", "last tile", "all but one"])
def test_a_large_negative_score_hides_nothing(kernel, entry, where):
    """The maximum of a row may be any finite number: none may mean "no key yet"."""
    inputs = qkv(batch=(1,), heads=4, L=5, S=70, E=64)
    slot = mx.arange(70)
    low = {
        "everywhere": slot >= 0,
        "first tile": slot < 32,
        "last tile": slot >= 64,
        "all but one": slot != 40,
    }[where]
    check(kernel, inputs, {"mask": mx.where(low, entry, 0.0)})


@every_kernel
@pytest.mark.parametrize("size", [1e36, -1e36])
def test_scores_may_be_very_large(kernel, size):
    """Scores up to 1e36: one key has all the weight, and differences of scores overflow exp."""
    query = mx.ones((1, 2, 3, 64))
    key = mx.broadcast_to(mx.linspace(-1, 1, 41)[:, None] * size / 64, (1, 1, 41, 64))
    check(kernel, (query, mx.contiguous(key), normal(1, 1, 41, 64)), {"scale": 1.0})


@every_fast_kernel
@pytest.mark.parametrize("sink", [LOWEST, -1e30, 1e30])
def test_a_sink_may_be_very_small_or_large(kernel, sink):
    inputs = qkv(batch=(1,), heads=4, L=3, S=40, E=64)
    check(kernel, inputs, {"sinks": mx.full((4,), sink)})
    check(kernel, inputs, {"sinks": mx.full((4,), sink), "mask": mx.full((40,), -1e30)})


@every_fast_kernel
@pytest.mark.parametrize("softcap", [1e-3, 0.5, 30.0, 1e4])
@pytest.mark.parametrize("size", [1.0, 40.0, 2000.0])
def test_a_soft_cap_limits_scores_of_any_size(kernel, softcap, size):
    """For scores beyond 44 times the cap, exp(2 x) is infinite: tanh computed from it would be NaN."""
    query, key, value = qkv(batch=(1,), heads=4, L=4, S=40, E=64)
    for sign in (1, -1):
        check(kernel, (sign * size * query, key, value), {"softcap": softcap})


@every_fast_kernel
def test_a_score_far_beyond_the_soft_cap_keeps_its_sign(kernel):
    """Scores of 1e6 and -1e6 become cap and -cap: weights exp(2) and exp(-2)."""
    query = mx.ones((1, 1, 2, 64))
    sign = mx.where(mx.arange(40) % 3 == 0, 1.0, -1.0)
    key = mx.contiguous(mx.broadcast_to(sign[:, None] * 1e6 / 64, (1, 1, 40, 64)))
    value = mx.contiguous(mx.broadcast_to(sign[:, None], (1, 1, 40, 64)))
    out, lse = run_clean(kernel, query, key, value, scale=1.0, softcap=2.0)
    high, low = 14 * np.exp(2.0), 26 * np.exp(-2.0)
    assert np.allclose(np.array(out), (high - low) / (high + low), rtol=1e-6)
    assert np.allclose(np.array(lse), np.log(high + low), rtol=1e-6)


@every_fast_kernel
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (3, 2)}, {"softcap": 2.0}], ids=str)
@pytest.mark.parametrize("given", ["start", "start and none", "start and rows"])
def test_a_sequence_may_begin_after_the_last_key(kernel, given, options):
    """With kv_start == S there is no key, and nothing after the last one is read."""
    query, key, value = qkv(batch=(3,), heads=4, L=5, S=40, E=64)
    sequences = {"kv_start": lengths(40, 0, 39)}
    if given == "start and none":
        sequences["kv_lens"] = lengths(0, 40, 1)
    if given == "start and rows":
        sequences["q_lens"] = lengths(5, 4, 1)
    mask = normal(3, 1, 5, 40)
    for more in ({}, {"mask": mask}, {"sinks": normal(4)}):
        all_options = {**options, **sequences, **more}
        out, lse = run_clean(kernel, query, key, value, **all_options)
        compare(out, lse, query, key, value, **all_options)
        assert mx.all(out[0] == 0)
