"""Properties that every fast kernel has: prefill, decode, and decode with several splits."""

from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from ...support.attention.check import compare, expected
from ...support.cases import lengths, normal, qkv, with_nan
from ...support.tolerance import same_bits, to_float64
from ..rules.kernels import FAST, run_clean
from .arguments import UNBOUNDED as WHOLE
from .run import FastCall


@pytest.fixture(params=FAST)
def run(request):
    """Runs a kernel, for which the harness must report nothing."""
    return partial(run_clean, request.param)


def test_slots_outside_the_sequence_have_no_effect(run):
    query, key, value = qkv(batch=(3,), L=8, S=70, E=64)
    given = {"kv_start": lengths(3, 0, 40), "kv_lens": lengths(30, 70, 0), "causal": True}
    slot = mx.arange(70)
    start, count = (given[name][:, None, None] for name in ("kv_start", "kv_lens"))
    free = (slot < start) | (slot >= start + count)
    clean = run(query, key, value, **given)
    compare(*clean, query, key, value, **given)
    assert same_bits(clean, run(query, with_nan(key, free), with_nan(value, free), **given))


def test_rows_of_padding_give_zero(run):
    query, key, value = qkv(L=8, S=40, E=64)
    given = {"q_lens": lengths(5, 0), "sinks": normal(4), "causal": True}
    padding = mx.arange(8) >= given["q_lens"][:, None, None]
    out, lse = run(with_nan(query, padding), key, value, **given)
    compare(out, lse, query, key, value, **given)
    padding = mx.broadcast_to(padding, lse.shape)
    assert mx.all(mx.where(padding[..., None], out == 0, True))
    assert mx.all(mx.where(padding, lse == -mx.inf, True))


def test_a_padded_batch_has_the_bits_of_each_sequence_alone(run):
    """Padding on the left; the window begins in the middle of a tile."""
    query, key, value = qkv(batch=(2,), L=8, S=80, E=64)
    options = {"causal": True, "window": 50}
    out, lse = run(query, key, value, **options, q_lens=lengths(8, 6), kv_start=lengths(0, 13))
    second = run(query[1:, :, :6], key[1:, :, 13:], value[1:, :, 13:], **options)
    assert same_bits((out[1:, :, :6], lse[1:, :, :6]), second)
    assert same_bits((out[:1], lse[:1]), run(query[:1], key[:1], value[:1], **options))


def test_rows_have_the_same_bits_in_every_chunk(run):
    query, key, value = qkv(L=8, S=100, E=64)
    options = {"causal": True, "window": 45}
    out, lse = run(query, key, value, **options)
    assert same_bits((out[:, :, 5:], lse[:, :, 5:]), run(query[:, :, 5:], key, value, **options))


def test_tiles_without_a_visible_key_are_not_read(run):
    """NaN in the tiles before and after all windows has no effect."""
    query, key, value = qkv(batch=(1,), L=4, S=200, E=64)
    options = {"window": (10, 0), "kv_lens": lengths(120)}
    slot = mx.arange(200)
    unread = (slot < 96) | (slot >= 120)
    clean = run(query, key, value, **options)
    assert same_bits(clean, run(query, with_nan(key, unread), with_nan(value, unread), **options))


def test_a_key_that_the_mask_hides_may_be_nan(run):
    query, key, value = qkv(L=5, S=33, E=64)
    hidden = mx.arange(33) == 20
    key = with_nan(key, hidden)
    for mask in (~hidden, mx.where(hidden, -mx.inf, 0.0)):
        compare(*run(query, key, value, mask=mask), query, key, value, mask=mask)


HIDING = {
    "bool": {"mask": mx.arange(70) != 60},
    "float": {"mask": mx.where(mx.arange(70) != 60, 0.0, -mx.inf)},
    "causal": {"causal": True},
    "window": {"window": (9, 2)},
    "sinks": {"causal": True, "sinks": normal(4)},
}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
@pytest.mark.parametrize("hide", HIDING)
@pytest.mark.parametrize(("dtype", "E"), [(mx.float32, 64), (mx.float16, 100), (mx.bfloat16, 200)], ids=str)
def test_a_hidden_value_changes_no_bit_of_rows_that_do_not_see_it(run, dtype, E, hide, value):
    """In the tile of the first and of the last keys; the rows that see it get it."""
    query, key, clean = qkv(batch=(1,), L=20, S=70, E=E, dtype=dtype)
    dirty = mx.array(clean)
    dirty[..., 60, 3] = value
    (out, lse), (clean_out, clean_lse) = (run(query, key, v, **HIDING[hide]) for v in (dirty, clean))
    want = expected(query, key, dirty, **HIDING[hide])
    seen = ~np.isfinite(want.out)
    assert seen.any() == (hide in ("causal", "window", "sinks"))
    assert mx.array_equal(lse, clean_lse)
    assert mx.array_equal(mx.where(mx.array(seen), 0, out), mx.where(mx.array(seen), 0, clean_out))
    assert np.array_equal(to_float64(out)[seen], want.out[seen], equal_nan=True)


def test_a_visible_nan_reaches_the_result(run):
    query, key, value = qkv(batch=(1,), heads=1, kv_heads=1, L=8, S=40, E=64)
    seen = mx.arange(8) >= 4
    nan = mx.arange(40) == 36
    out, lse = run(query, with_nan(key, nan), value, causal=True, softcap=3.0, sinks=normal(1))
    assert mx.array_equal(mx.isnan(lse[0, 0]), seen)
    assert mx.array_equal(mx.all(mx.isnan(out[0, 0]), axis=-1), seen)
    out, lse = run(query[:, :, 4:], key, with_nan(value, nan), causal=True)
    assert mx.all(mx.isnan(out))
    assert not mx.any(mx.isnan(lse))


def test_a_row_of_nan_scores_is_nan(run):
    query, key, value = qkv(L=2, S=64, E=64)
    out, lse = run(query * mx.nan, key, value)
    assert mx.all(mx.isnan(out))
    assert mx.all(mx.isnan(lse))


@pytest.mark.parametrize("entry", [np.inf, np.nan], ids=str)
def test_a_mask_of_nan_or_infinity_gives_nan(run, entry):
    out, _ = run(*qkv(L=2, S=40, E=64), mask=mx.where(mx.arange(40) == 35, entry, 0.0))
    assert mx.all(mx.isnan(out))


def test_large_negative_scores_hide_nothing(run):
    inputs = qkv(L=5, S=40, E=64)
    options = {"mask": mx.full((40,), -1e30)}
    compare(*run(*inputs, **options), *inputs, **options)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=["f16", "bf16"])
def test_scores_may_exceed_the_range_of_half_precision(run, dtype):
    """Scores up to 10 ** 5: only the largest have any weight."""
    query, key, value = (x.astype(dtype) for x in qkv(L=5, S=40, E=64))
    options = {"scale": 1.0}
    inputs = query * 100, key * 100, value
    out, lse = run(*inputs, **options)
    assert mx.max(mx.abs(lse)) > 65504
    compare(out, lse, *inputs, **options)


@pytest.mark.parametrize("S", [0, 40])
def test_a_row_with_only_a_sink(run, S):
    """The sink has all the weight, so the output is 0 and the log-sum-exp is the sink."""
    sinks = normal(4)
    query, key, value = qkv(L=3, S=S, E=64)
    out, lse = run(query, key, value, sinks=sinks, kv_lens=lengths(0, 0))
    assert mx.all(out == 0)
    assert np.allclose(np.array(lse), np.array(sinks)[None, :, None])


def test_each_batch_entry_may_have_its_own_sinks(run):
    query, key, value = qkv(L=3, S=40, E=64)
    sinks = normal(2, 4)
    out, lse = run(query, key, value, sinks=sinks)
    for b in range(2):
        own = [x[b : b + 1] for x in (out, lse, query, key, value)]
        compare(*own, sinks=sinks[b])


def test_lengths_out_of_range_are_clamped(run):
    """The host checks lengths where it can; the kernel takes the nearest valid ones."""
    query, key, value = qkv(batch=(3,), L=5, S=40, E=64)
    wrong = {"q_lens": lengths(-1, 99, 4), "kv_start": lengths(3, 30, 99), "kv_lens": lengths(99, 99, -7)}
    right = {"q_lens": lengths(0, 5, 4), "kv_start": lengths(3, 30, 40), "kv_lens": lengths(37, 10, 0)}
    compare(*run(query, key, value, **wrong), query, key, value, **right)


@pytest.mark.parametrize("step", [3.0, -3.0], ids=["rises", "falls"])
def test_the_running_maximum_may_change_in_every_tile(run, step):
    key = mx.broadcast_to(step * mx.arange(130.0)[:, None], (130, 64))[None, None] + normal(1, 1, 130, 64)
    inputs = mx.ones((1, 1, 3, 64)), key, normal(1, 1, 130, 64, seed=1)
    compare(*run(*inputs, scale=1 / 64), *inputs, scale=1 / 64)


OPTIONS = {
    "nothing": ({}, (0, 0, 0, 0, 0, 0)),
    "a scale": ({"scale": 2.0}, (0, 0, 0, 0, 0, 0)),
    "a mask of bool": ({"mask": mx.ones((5,), mx.bool_)}, (1, 0, 0, 0, 0, 0)),
    "a mask of bfloat16": ({"mask": mx.ones((5,), mx.bfloat16)}, (4, 0, 0, 0, 0, 0)),
    "causal": ({"causal": True}, (0, 1, 0, 0, 0, 0)),
    "a left limit": ({"window": (3, -1)}, (0, 1, 0, 0, 0, 0)),
    "a right limit": ({"window": (-1, 0)}, (0, 1, 0, 0, 0, 0)),
    "a soft cap": ({"softcap": 30.0}, (0, 0, 1, 0, 0, 0)),
    "sinks": ({"sinks": mx.zeros(4)}, (0, 0, 0, 1, 0, 0)),
    "rows": ({"q_lens": lengths(1, 2)}, (0, 0, 0, 0, 1, 0)),
    "starts": ({"kv_start": lengths(1, 2)}, (0, 0, 0, 0, 1, 0)),
    "keys": ({"kv_lens": lengths(1, 2)}, (0, 0, 0, 0, 1, 0)),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_pipeline_has_exactly_the_features_of_the_call(name):
    options, features = OPTIONS[name]
    call = FastCall(*qkv(L=3, S=5, E=64), **options, keys_per_split=WHOLE)
    assert call.launch("prefill").features == call.launch("decode").features == features


def test_a_padded_head_size_is_a_feature():
    assert FastCall(*qkv(L=3, S=5, E=63)).launch("decode").features == (0, 0, 0, 0, 0, 1)
