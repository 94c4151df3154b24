"""Both passes skip hidden tiles, and the memory of a gradient is linear in the lengths."""

import itertools

import mlx.core as mx
import pytest

from tiny_llm.attention import explain, flash_attention

from ...support.attention.tiles import tiles_with_a_visible_key
from ...support.cases import DTYPE_IDS, DTYPES, lengths, normal, qkv, random_mask
from ...support.native import last_run

pytestmark = pytest.mark.usefixtures("on_the_cpu")

VISIBILITIES = (
    {},
    {"causal": True},
    {"causal": True, "window": 1},
    {"causal": True, "window": 64},
    {"causal": True, "window": 65},
    {"window": 100},
    {"window": (0, 30)},
    {"window": (-1, 3)},
)


def run_gradient(q, k, v, argnums=(0, 1, 2), **options):
    mx.eval(mx.grad(lambda *x: flash_attention(*x, **options).sum(), argnums=argnums)(q, k, v))
    return last_run()


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(
    ("L", "S"), [(512, 512), (500, 500), (60, 60), (128, 700), (700, 128), (1, 2000), (9, 2000)]
)
@pytest.mark.parametrize("group", [1, 3])
def test_both_passes_visit_the_tiles_with_a_visible_key(L, S, group, dtype):
    """A tile of dK and dV, and of one pass, has the rows and keys of a tile of dQ exchanged."""
    q, k, v = qkv(batch=(2,), heads=2 * group, kv_heads=2, L=L, S=S, E=16, dtype=dtype)
    for visibility in VISIBILITIES:
        plan = explain(flash_attention, q, k, v, **visibility)
        rows, keys = plan.tile
        run = run_gradient(q, k, v, **visibility)
        dkv = tiles_with_a_visible_key(L, S, keys, rows, group, **visibility)
        one_pass = plan.backward_schedule == "one_pass"
        dq = dkv if one_pass else tiles_with_a_visible_key(L, S, rows, keys, group, **visibility)
        assert (run["tiles_visited"], run["tiles_total"]) == (4 * dq[0], 4 * dq[1]), visibility
        assert (run["key_tiles_visited"], run["key_tiles_total"]) == (4 * dkv[0], 4 * dkv[1]), visibility


def test_lengths_reduce_the_work_of_both_passes():
    q, k, v = qkv(batch=(3,), heads=2, kv_heads=2, L=300, S=500, E=16)
    n_q, start, n_k = (300, 70, 0), (0, 130, 3), (500, 64, 400)
    plan = explain(flash_attention, q, k, v, causal=True)
    rows, keys = plan.tile
    run = run_gradient(
        q, k, v, causal=True, q_lens=lengths(*n_q), kv_start=lengths(*start), kv_lens=lengths(*n_k)
    )
    dq = (keys, rows) if plan.backward_schedule == "one_pass" else (rows, keys)
    for counter, tile in (("tiles_visited", dq), ("key_tiles_visited", (keys, rows))):
        visited = sum(
            tiles_with_a_visible_key(300, 500, *tile, causal=True, n_q=a, n_k=b)[0]
            for a, b in zip(n_q, n_k, strict=True)
        )
        assert run[counter] == 2 * visited


def test_a_pass_without_a_wanted_gradient_does_not_run():
    inputs = qkv(L=100)
    assert run_gradient(*inputs, argnums=(0,))["key_tiles_visited"] == 0
    assert run_gradient(*inputs, argnums=(2,))["tiles_visited"] == 0


VARIANTS = {
    "plain": {},
    "window": {"causal": True, "window": 100},
    "softcap and sinks": {"softcap": 3.0, "sinks": normal(8)},
    "lengths": {"kv_lens": lengths(500)},
}


def variant(N, options, kv_heads=8):
    q, k, v = qkv(batch=(1,), heads=8, kv_heads=kv_heads, L=N, E=32)
    mx.eval(q, k, v)
    mask = {"mask": random_mask(1, 1, 1, N)} if "mask" in options else {}
    return (q, k, v), {**options, **mask}


@pytest.mark.parametrize("kv_heads", [8, 2, 1])
@pytest.mark.parametrize("options", [*VARIANTS.values(), {"mask": True}], ids=[*VARIANTS, "mask of keys"])
def test_memory_doubles_when_the_length_doubles(options, kv_heads):
    saved, peaks = [], []
    for N in (512, 1024, 2048):
        inputs, given = variant(N, options, kv_heads)
        saved.append(explain(flash_attention, *inputs, **given).saved_bytes)
        gradient = mx.grad(
            lambda *x, given=given: flash_attention(*x, **given).square().sum(), argnums=(0, 1, 2)
        )
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        mx.eval(gradient(*inputs))
        peaks.append(mx.get_peak_memory() - before)
    for sizes in (saved, peaks):
        assert all(1.9 <= b / a <= 2.1 for a, b in itertools.pairwise(sizes)), sizes


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_memory_stays_below_the_predicted_bound(options, dtype):
    inputs = qkv(batch=(1,), heads=8, kv_heads=2, L=3000, E=32, dtype=dtype)
    d_out, d_lse = normal(*inputs[0].shape, dtype=dtype), normal(*inputs[0].shape[:-1])
    both = lambda *x: list(flash_attention(*x, **options, return_lse=True))  # noqa: E731
    mx.eval(*inputs, d_out, d_lse)
    plan = explain(flash_attention, *inputs, **options)
    assert plan.workspace_bytes_backward == 8 * 3000 * 4
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    results = mx.vjp(both, list(inputs), [d_out, d_lse])
    mx.eval(results)
    produced = sum(x.nbytes for part in results for x in part)
    assert mx.get_peak_memory() - before - produced <= plan.workspace_bytes_backward + (1 << 20)
