"""`explain` predicts the run: the path, the tiles, the memory, and why a kernel does not apply."""

import math
import warnings

import mlx.core as mx
import pytest

from tiny_llm.attention import attention_reference, explain, flash_attention

from ...support import native
from ...support.cases import DTYPE_IDS, DTYPES, lengths, normal, qkv, random_mask
from ...support.refusal import refused

SHAPES = [(1, 1), (33, 65), (1, 4096), (16, 4096), (64, 4096), (300, 300)]
OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"window": 20, "causal": True},
    "mask": {"mask": True},
    "sinks": {"sinks": normal(4), "softcap": 5.0},
}


def call(L, S, options, dtype=mx.float32):
    mask = {"mask": random_mask(L, S)} if "mask" in options else {}
    return qkv(L=L, S=S, dtype=dtype), {**options, **mask}


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(("L", "S"), SHAPES)
def test_the_run_takes_the_predicted_path(L, S, options, dtype):
    inputs, options = call(L, S, options, dtype)
    plan = explain(flash_attention, *inputs, **options)
    mx.eval(flash_attention(*inputs, **options))
    run = native.last_run()
    assert plan.fused
    assert plan.path.startswith("cpu.")
    predicted = (plan.path, plan.splits, plan.tiles_visited, plan.tiles_total)
    assert predicted == tuple(run[name] for name in ("path", "splits", "tiles_visited", "tiles_total"))


@pytest.mark.parametrize("L", [2, 8, 9, 16, 33, 64])
def test_speculative_shapes_stay_fused(L):
    plan = explain(flash_attention, *qkv(batch=(1,), heads=8, kv_heads=1, L=L, S=4096, E=64), causal=True)
    assert plan.fused
    assert plan.path.startswith("cpu.")


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(("L", "S"), [(1, 30000), (700, 700), (16, 8000)])
def test_memory_stays_below_the_predicted_bound(L, S, options):
    inputs, options = call(L, S, options)
    arrays = [x for x in options.values() if isinstance(x, mx.array)]
    mx.eval(*inputs, *arrays)
    plan = explain(flash_attention, *inputs, **options)
    partials = 0 if plan.path == "cpu.tiled" else plan.splits * (2 * 4 * L) * (32 + 2) * 4
    assert plan.workspace_bytes <= partials
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    results = flash_attention(*inputs, **options, return_lse=True)
    mx.eval(results)
    outputs = sum(x.nbytes for x in results)
    assert mx.get_peak_memory() - before - outputs <= plan.workspace_bytes + (1 << 20)


def test_copies_of_strided_inputs_are_predicted():
    q, k, v = qkv(L=33, S=65)
    assert explain(flash_attention, q, k, v).copies_bytes == 0
    column_first = mx.contiguous(k.swapaxes(-1, -2)).swapaxes(-1, -2)
    row_strided = mx.contiguous(v.swapaxes(1, 2)).swapaxes(1, 2)
    mx.eval(column_first, row_strided)
    plan = explain(flash_attention, q, column_first, row_strided)
    assert plan.copies_bytes == k.nbytes
    assert plan.workspace_bytes >= k.nbytes


@pytest.mark.parametrize(
    ("mask", "read"),
    [
        (None, "none"),
        ("causal", "none"),
        ((1, 1, 1, 65), "broadcast"),
        ((33, 65), "tile"),
        ((2, 4, 33, 65), "tile"),
    ],
    ids=str,
)
def test_how_the_mask_is_read(mask, read):
    mask = random_mask(*mask) if isinstance(mask, tuple) else mask
    assert explain(flash_attention, *qkv(L=33, S=65), mask=mask).mask_read == read


def test_guarantees():
    plan = explain(flash_attention, *qkv())
    assert plan.deterministic
    assert explain(flash_attention, *qkv(), batch_invariant=True).batch_invariant
    assert plan.math == "ieee-f32"
    assert plan.schedule in ("v2", "split")
    assert not plan.reasons


@pytest.mark.parametrize("E", [32, 257])
def test_a_gradient_takes_the_predicted_path(E):
    q, k, v = qkv(L=33, E=E)
    mx.eval(mx.grad(lambda q: flash_attention(q, k, v, on_fallback="allow").square().sum())(q))
    assert native.last_run()["path"] == explain(flash_attention, q, k, v).backward_path


def test_explaining_runs_nothing():
    mx.eval(flash_attention(*qkv(L=33)))
    before = native.last_run()
    explain(flash_attention, *qkv(L=70))
    assert native.last_run() == before


def too_wide():
    return qkv(L=5, S=9, E=257)


def test_a_missing_kernel_has_a_reason():
    plan = explain(flash_attention, *too_wide())
    assert not plan.fused
    assert plan.path == "reference"
    assert any("257" in reason and "256" in reason for reason in plan.reasons)


def test_the_reference_explains_itself():
    plan = explain(attention_reference, *qkv())
    assert plan.path == "reference"
    assert not plan.fused


def test_a_fallback_warns_once_per_reason():
    inputs = qkv(L=5, S=9, E=261)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            mx.eval(flash_attention(*inputs))
    assert len(caught) == 1
    assert "261" in str(caught[0].message)


def test_bad_arguments_are_refused_like_the_call():
    with refused("softcap"):
        explain(flash_attention, *qkv(), softcap=-1.0)
    with refused("kv_lens"):
        explain(flash_attention, *qkv(), kv_lens=lengths(1, 2, 3))


def test_broadcast_inputs_larger_than_any_memory_are_counted_not_overflowed():
    huge = mx.broadcast_to(mx.zeros((8,)), (4, 4, 2**31 - 1, 8))
    plan = explain(flash_attention, huge, huge, huge)
    assert plan.workspace_bytes_backward >= 4 * 4 * 4 * (2**31 - 1)
    assert explain(attention_reference, huge, huge, huge).workspace_bytes_backward == 2**63 - 1
    assert plan.tiles_total > 2**50


@pytest.mark.parametrize(
    ("batch", "Hq", "Hkv", "L", "S", "E"),
    [
        ((1,), 4, 2, 64, 300, 64),
        ((2**20,), 2**10, 2**10, 2**10, 2**10, 64),  # about the largest size that 64 bits hold
        ((2**30,), 2**30, 2**30, 64, 64, 64),
        ((2**30,), 2**30, 2**30, 1, 4096, 256),
        ((2**31 - 1,) * 3, 1, 1, 1, 1, 1),
        ((2**16,) * 4, 2, 1, 3, 5, 8),  # a batch of 2^64, which is 0 modulo 2^64
        ((2**31 - 1,) * 2, 2**31 - 1, 1, 1, 2**31 - 1, 257),  # without a kernel
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=str)
def test_byte_counts_saturate(batch, Hq, Hkv, L, S, E, dtype):
    query, key = (mx.broadcast_to(mx.zeros((E,), dtype), (*batch, *axes, E)) for axes in ((Hq, L), (Hkv, S)))
    plan = explain(flash_attention, query, key, key)
    sequences = math.prod(batch)
    rows, keys = sequences * Hq * L, sequences * Hkv * S
    saved = (rows + keys) * 2 * E * dtype.size + rows * 4
    assert plan.saved_bytes == min(saved, 2**63 - 1)
    assert plan.tiles_total >= min(sequences, 2**63 - 1)
    assert plan.tiles_visited > 0
    for number in (plan.workspace_bytes, plan.workspace_bytes_backward, plan.copies_bytes):
        assert 0 <= number <= 2**63 - 1


def test_a_large_batch_of_full_length_has_one_plan():
    many = mx.broadcast_to(mx.zeros((8,)), (2**28, 1, 1, 8))
    assert explain(flash_attention, many, many, many).tiles_total == 2**28
