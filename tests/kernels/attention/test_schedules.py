"""The schedule V1, with the loop over keys outside, computes what V2 computes."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import explain, flash_attention, flash_attention_varlen

from ...support.attention.check import compare
from ...support.attention.packed import packed
from ...support.cases import DTYPE_IDS, DTYPES, lengths, qkv, random_mask
from ...support.covering import pairwise
from ...support.native import DEVICE, available_isas, last_run
from ...support.native import attention as native_attention
from ...support.refusal import refused

pytestmark = pytest.mark.skipif(mx.gpu == DEVICE, reason="a GPU has its own schedules")


@pairwise(
    {"shape": [(1, 1), (33, 65), (65, 33), (300, 300), (1, 1500), (700, 70)], "E": [8, 64, 80],
     "heads": [(1, 1), (8, 2), (4, 4)], "dtype": [*DTYPES],
     "options": [{}, {"causal": True}, {"window": 9, "causal": True}, {"softcap": 5.0}]}
)  # fmt: skip
def test_the_same_bits_as_v2(shape, E, heads, dtype, options):
    """Unless V2 splits the keys, which one order of the sums cannot equal."""
    (L, S), (Hq, Hkv) = shape, heads
    q, k, v = qkv(heads=Hq, kv_heads=Hkv, L=L, S=S, E=E, dtype=dtype)
    out, lse = flash_attention(q, k, v, schedule="v1", return_lse=True, on_fallback="error", **options)
    compare(out, lse, q, k, v, **options)
    other, other_lse = flash_attention(q, k, v, return_lse=True, **options)
    mx.eval(other, other_lse)
    if last_run()["path"] == "cpu.tiled":
        assert mx.array_equal(out, other)
        assert mx.array_equal(lse, other_lse)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("isa", available_isas())
def test_instruction_sets(isa, dtype):
    q, k, v = qkv(L=150, S=300, E=64, dtype=dtype)
    one, _ = native_attention(q, k, v, causal=True, isa=isa, schedule="v1")
    two, _ = native_attention(q, k, v, causal=True, isa=isa)
    assert mx.array_equal(one, two)


def test_masks_sinks_and_lengths():
    q, k, v = qkv(L=150, S=200)
    options = {
        "mask": random_mask(150, 200),
        "sinks": mx.array([0.5, -1.0, 2.0, 0.0]),
        "q_lens": lengths(150, 20),
        "kv_lens": lengths(131, 0),
    }
    one = flash_attention(q, k, v, schedule="v1", return_lse=True, **options)
    two = flash_attention(q, k, v, return_lse=True, **options)
    assert all(mx.array_equal(x, y) for x, y in zip(one, two, strict=True))


def test_packed_sequences():
    call = packed([1, 300, 0, 70])
    one = flash_attention_varlen(*call, causal=True, schedule="v1")
    assert mx.array_equal(one, flash_attention_varlen(*call, causal=True))


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": 100, "causal": True}], ids=str)
def test_explain_and_the_run_agree(options):
    q, k, v = qkv(L=500, S=700)
    plan = explain(flash_attention, q, k, v, schedule="v1", **options)
    mx.eval(flash_attention(q, k, v, schedule="v1", **options))
    run = last_run()
    assert (plan.path, plan.schedule, plan.splits) == (run["path"], "v1", 1)
    assert (plan.tiles_visited, plan.tiles_total) == (run["tiles_visited"], run["tiles_total"])
    two = explain(flash_attention, q, k, v, **options)
    assert (two.schedule, two.tiles_visited) == ("v2", plan.tiles_visited)


def test_its_state_is_in_memory_as_explained():
    """That of all rows of a head, where V2 keeps a few tiles."""
    inputs = qkv(batch=(1,), heads=1, kv_heads=1, L=20000, S=64, E=64)
    mx.eval(*inputs, flash_attention(*inputs, schedule="v1"))
    plan = explain(flash_attention, *inputs, schedule="v1")
    # Acc, m and l of each row, and of a tile what it shares with the others.
    assert 20000 * (64 + 2) * 4 <= plan.workspace_bytes <= 20000 * (64 + 2) * 4 + 2**20
    assert explain(flash_attention, *inputs).workspace_bytes == 0
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    out = flash_attention(*inputs, schedule="v1", return_lse=True)
    mx.eval(*out)
    transient = mx.get_peak_memory() - before - sum(x.nbytes for x in out)
    assert 20000 * (64 + 2) * 4 <= transient <= plan.workspace_bytes + 2**20


def test_other_schedules_are_refused():
    with refused("schedule"):
        flash_attention(*qkv(), schedule="v3")
    with refused("schedule", TypeError):
        flash_attention(*qkv(), schedule=1)
    assert np.isfinite(np.array(flash_attention(*qkv(), schedule="v2"))).all()
