"""Packed sequences: each gives what it gives alone, whatever its neighbours are."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import explain, flash_attention, flash_attention_prefill, flash_attention_varlen

from ...support.attention.packed import check_varlen, packed
from ...support.cases import DTYPE_IDS, DTYPES
from ...support.native import attention as native_attention
from ...support.native import available_isas, last_run
from ...support.tolerance import FLOOR, to_float64

# The lengths of the specification, an empty sequence, and one key beside thousands.
SIZES = (
    [512, 512, 512],
    [5, 0, 35],
    [33],
    [70],
    [],
    [0],
    [1, 4096],
    [4096, 1],
    [1, 1, 1],
    [60, 1, 0, 130, 17],
)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_lengths(sizes, causal):
    check_varlen(packed(sizes), causal=causal)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("E", [8, 64, 72, 128])
def test_types_and_head_sizes(dtype, E):
    check_varlen(packed([40, 3, 129], E=E, dtype=dtype), causal=True)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (8, 1), (8, 2), (6, 6)])
def test_head_groups(heads, kv_heads):
    check_varlen(packed([33, 70, 1], heads=heads, kv_heads=kv_heads), causal=True)


@pytest.mark.parametrize(
    "options",
    [
        {"window": 7, "causal": True},
        {"window": (3, 5)},
        {"softcap": 3.0},
        {"sinks": np.array([0.5, -1.0, 2.0, 0.0])},
        {"window": 9, "causal": True, "softcap": 5.0, "sinks": np.array([0.5, -1.0, 2.0, 0.0])},
        {"scale": -0.3},
    ],
    ids=str,
)
def test_options(options):
    check_varlen(packed([70, 1, 0, 33], [131, 5, 7, 20]), **options)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_more_keys_than_queries_are_an_earlier_prefix(causal):
    """Bottom-right alignment in each sequence; the queries without keys give zeros."""
    check_varlen(packed([7, 1, 40, 5, 0], [70, 5000, 17, 0, 9]), causal=causal)


def test_the_bits_of_a_sequence_do_not_depend_on_its_neighbours():
    sizes, dtype = [1, 33, 0, 4096, 130], mx.bfloat16
    call = packed(sizes, E=64, dtype=dtype)
    together, lse = flash_attention_varlen(*call, causal=True, return_lse=True)
    for rows, keys in call.parts():
        alone, lse_alone = flash_attention(*call.alone(rows, keys), causal=True, return_lse=True)
        assert mx.array_equal(together[rows], alone[0].swapaxes(0, 1))
        assert mx.array_equal(lse[rows], lse_alone[0].swapaxes(0, 1))


def test_changing_one_sequence_leaves_the_others_alone():
    call = packed([40, 70, 33], E=64)
    before = flash_attention_varlen(*call, causal=True)
    middle = mx.arange(143)[:, None, None]
    poison = (middle >= 40) & (middle < 110)
    query, key, value = (mx.where(poison, mx.nan, x) for x in call[:3])
    after = flash_attention_varlen(query, key, value, *call[3:], causal=True)
    assert mx.array_equal(before[:40], after[:40])
    assert mx.array_equal(before[110:], after[110:])
    assert mx.all(mx.isnan(after[40:110])).item()


def test_lengths_within_sequences():
    """Only the first queries and a range of keys of each sequence count; the rest may hold NaN."""
    call = packed([40, 8, 33], [70, 9, 40])
    q_lens, kv_start, kv_lens = [33, 0, 5], [2, 3, 0], [60, 6, 40]
    valid_q, valid_k = np.zeros(81, bool), np.zeros(119, bool)
    for i, (rows, keys) in enumerate(call.parts()):
        valid_q[rows.start : rows.start + q_lens[i]] = True
        valid_k[keys.start + kv_start[i] : keys.start + kv_start[i] + kv_lens[i]] = True
    query = mx.where(mx.array(valid_q)[:, None, None], call.query, mx.nan)
    key, value = (mx.where(mx.array(valid_k)[:, None, None], x, mx.nan) for x in call[1:3])
    out, lse = flash_attention_varlen(
        query, key, value, *call[3:], causal=True, q_lens=q_lens, kv_start=kv_start, kv_lens=kv_lens,
        return_lse=True,
    )  # fmt: skip
    assert (to_float64(out)[~valid_q] == 0).all()
    assert (to_float64(lse)[~valid_q] == -np.inf).all()
    dense = packed([33, 0, 5], [60, 6, 40])._replace(
        query=call.query[mx.array(np.flatnonzero(valid_q))],
        key=call.key[mx.array(np.flatnonzero(valid_k))],
        value=call.value[mx.array(np.flatnonzero(valid_k))],
    )
    alone = flash_attention_varlen(*dense, causal=True)
    assert mx.array_equal(out[mx.array(np.flatnonzero(valid_q))], alone)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_change_the_bits(threads):
    call = packed([1, 4096, 3], E=64)
    rows = {"cu_seqlens_q": call.cu_seqlens_q, "cu_seqlens_k": call.cu_seqlens_k, "causal": True}
    out, lse = native_attention(*call[:3], threads=threads, **rows)
    again, lse_again = native_attention(*call[:3], threads=2, **rows)
    assert mx.array_equal(out, again)
    assert mx.array_equal(lse, lse_again)


@pytest.mark.parametrize("isa", available_isas())
def test_instruction_sets(isa):
    call = packed([1, 130, 33], E=64)
    rows = {"cu_seqlens_q": call.cu_seqlens_q, "cu_seqlens_k": call.cu_seqlens_k, "causal": True}
    out, _ = native_attention(*call[:3], isa=isa, **rows)
    want = flash_attention_varlen(*call, causal=True)
    assert np.abs(to_float64(out) - to_float64(want)).max() <= FLOOR[mx.float32]


def test_the_output_has_no_gaps():
    """[T, H_q * E] for the next layer is a view, not a copy."""
    call = packed([33, 70])
    out = flash_attention_varlen(*call)
    mx.eval(out)
    before = mx.get_active_memory()
    flat = mx.flatten(out, -2, -1)
    mx.eval(flat)
    assert mx.get_active_memory() - before < out.nbytes


def test_explain_names_the_path_that_runs_and_counts_its_tiles():
    for call in (packed([60, 1, 0, 130]), packed([1, 1], [5000, 3]), packed([7], [9])):
        explanation = explain(flash_attention_varlen, *call, causal=True)
        mx.eval(flash_attention_varlen(*call, causal=True))
        run = last_run()
        assert explanation.fused
        assert explanation.reasons == ()
        assert run["path"] == explanation.path
        assert run["tiles_visited"] == explanation.tiles_visited
        assert run["tiles_total"] == explanation.tiles_total
        assert run["splits"] == explanation.splits
    assert explain(flash_attention_varlen, *packed([1, 1], [5000, 3])).schedule == "split"


def test_a_short_sequence_gets_no_tiles_of_a_long_one():
    one = explain(flash_attention_varlen, *packed([1]), causal=True)
    long = explain(flash_attention_varlen, *packed([4096]), causal=True)
    both = explain(flash_attention_varlen, *packed([1, 4096]), causal=True)
    assert both.tiles_total == one.tiles_total + long.tiles_total
    assert both.tiles_visited == one.tiles_visited + long.tiles_visited


def test_workspace_is_as_explained():
    call = packed([512, 1, 700], E=64)
    mx.eval(*call[:3])
    explanation = explain(flash_attention_varlen, *call, causal=True)
    out = flash_attention_varlen(*call, causal=True)
    mx.eval(out)
    del out
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    out, lse = flash_attention_varlen(*call, causal=True, return_lse=True)
    mx.eval(out, lse)
    transient = mx.get_peak_memory() - before - out.nbytes - lse.nbytes
    assert transient <= explanation.workspace_bytes + 2**20


def test_prefill_of_minivllm():
    call = packed([33, 5, 70], [40, 5, 200], heads=8, kv_heads=2, E=64)
    out = flash_attention_prefill(*call[:4], 0.125, 8, 2, 64, call.cu_seqlens_k)
    assert mx.array_equal(out, flash_attention_varlen(*call, 0.125, causal=True))


@pytest.mark.parametrize("E", [24, 257])
def test_fallback(E):
    """E = 257 has no kernel: the reference graph computes the same."""
    call = packed([7, 0, 33], [20, 4, 33], E=E)
    sinks = np.array([0.5, -1.0, 2.0, 0.0])
    options = {"causal": True, "window": 9, "q_lens": [7, 0, 30], "kv_start": [3, 0, 0]}
    explanation = explain(flash_attention_varlen, *call, **options)
    assert explanation.path == ("reference" if E > 256 else "cpu.tiled")
    out, lse = flash_attention_varlen(
        *call, **options, sinks=mx.array(sinks, mx.float32), return_lse=True, on_fallback="allow"
    )
    for i, (rows, keys) in enumerate(call.parts()):
        lengths = {name: mx.array([options[name][i]]) for name in ("q_lens", "kv_start")}
        alone, lse_alone = flash_attention(
            *call.alone(rows, keys), causal=True, window=9, sinks=mx.array(sinks, mx.float32), **lengths,
            return_lse=True, on_fallback="allow",
        )  # fmt: skip
        assert mx.allclose(out[rows], alone[0].swapaxes(0, 1), atol=5e-6)
        assert mx.allclose(lse[rows], lse_alone[0].swapaxes(0, 1), atol=5e-6)


def test_gradients_are_those_of_each_sequence_alone():
    call = packed([7, 33, 1], [20, 33, 9], E=16)

    def together(query, key, value):
        return (flash_attention_varlen(query, key, value, *call[3:], causal=True) * 0.5).square().sum()

    gradients = mx.grad(together, argnums=(0, 1, 2))(*call[:3])
    for rows, keys in call.parts():

        def alone(query, key, value):
            return (flash_attention(query, key, value, causal=True) * 0.5).square().sum()

        separate = mx.grad(alone, argnums=(0, 1, 2))(*call.alone(rows, keys))
        for got, want, part in zip(gradients, separate, (rows, keys, keys), strict=True):
            assert mx.allclose(got[part], want[0].swapaxes(0, 1), atol=5e-6)


def test_compiled_shapeless():
    call = packed([7, 33])
    compiled = mx.compile(
        lambda q, k, v, cu: flash_attention_varlen(q, k, v, cu, causal=True), shapeless=True
    )
    for sizes in ([7, 33], [1, 2, 70]):
        call = packed(sizes)
        out = compiled(*call[:3], mx.array(call.cu_seqlens_q))
        assert mx.array_equal(out, flash_attention_varlen(*call, causal=True))
