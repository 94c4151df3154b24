"""The kernels compute exactly the score tiles with a visible key, by the counter of the run."""

import mlx.core as mx
import pytest

from tiny_llm.attention import explain, flash_attention

from ...support.attention.tiles import tiles_with_a_visible_key
from ...support.cases import DTYPE_IDS, DTYPES, lengths, qkv, random_mask
from ...support.native import last_run


@pytest.mark.parametrize(
    ("L", "S", "rows", "keys", "visibility", "expected"),
    [
        (1024, 1024, 64, 64, {"causal": True}, (136, 256)),
        (1024, 1024, 32, 32, {"causal": True}, (528, 1024)),
        (1000, 1000, 64, 32, {"causal": True}, (272, 512)),
        (128, 1024, 64, 64, {"causal": True}, (31, 32)),
        (1024, 128, 64, 64, {"causal": True}, (3, 32)),
        (60, 60, 32, 32, {"causal": True}, (3, 4)),
        (1024, 1024, 64, 64, {"causal": True, "window": 1}, (16, 256)),
        (1024, 1024, 64, 64, {"causal": True, "window": 64}, (31, 256)),
        (1024, 1024, 64, 64, {"causal": True, "window": 65}, (31, 256)),
        (1024, 1024, 64, 64, {"causal": True, "window": 128}, (45, 256)),
        (1024, 1024, 64, 64, {"causal": True, "window": 129}, (45, 256)),
        (1024, 1024, 64, 64, {"causal": True, "window": 256}, (70, 256)),
        (1024, 1024, 64, 64, {"causal": True, "window": 1024}, (136, 256)),
        (1024, 1024, 64, 64, {"window": 64}, (46, 256)),
        (1024, 1024, 64, 64, {"window": 128}, (46, 256)),
        (1024, 1024, 64, 64, {"window": 256}, (74, 256)),
    ],
    ids=str,
)
def test_the_count_itself(L, S, rows, keys, visibility, expected):
    assert tiles_with_a_visible_key(L, S, rows, keys, **visibility) == expected


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


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(
    ("L", "S"), [(512, 512), (500, 500), (60, 60), (128, 700), (700, 128), (1, 2000), (9, 2000)]
)
@pytest.mark.parametrize("group", [1, 3])
def test_a_run_visits_the_tiles_with_a_visible_key(L, S, group, dtype):
    q, k, v = qkv(batch=(2,), heads=2 * group, kv_heads=2, L=L, S=S, E=16, dtype=dtype)
    for visibility in VISIBILITIES:
        plan = explain(flash_attention, q, k, v, **visibility)
        mx.eval(flash_attention(q, k, v, **visibility))
        visited, total = tiles_with_a_visible_key(L, S, *plan.tile, group, **visibility)
        run = last_run()
        assert (run["tiles_visited"], run["tiles_total"]) == (4 * visited, 4 * total), visibility
        assert (plan.tiles_visited, plan.tiles_total) == (4 * visited, 4 * total), visibility


def test_lengths_reduce_the_work():
    L, S = 300, 500
    q, k, v = qkv(batch=(3,), heads=2, kv_heads=2, L=L, S=S, E=16)
    n_q, start, n_k = (300, 70, 0), (0, 130, 3), (500, 64, 400)
    plan = explain(flash_attention, q, k, v, causal=True)
    mx.eval(
        flash_attention(
            q, k, v, causal=True, q_lens=lengths(*n_q), kv_start=lengths(*start), kv_lens=lengths(*n_k)
        )
    )
    # Tiles start at the first valid key of each sequence, so count in logical keys.
    visited = sum(
        tiles_with_a_visible_key(L, S, *plan.tile, causal=True, n_q=a, n_k=b)[0]
        for a, b in zip(n_q, n_k, strict=True)
    )
    assert last_run()["tiles_visited"] == 2 * visited


def test_causal_work_is_half_and_window_work_is_a_band():
    q, k, v = qkv(batch=(1,), heads=1, kv_heads=1, L=2048, S=2048, E=8)
    tiles = {}
    for name, options in {
        "full": {},
        "causal": {"causal": True},
        "window": {"causal": True, "window": 128},
    }.items():
        mx.eval(flash_attention(q, k, v, **options))
        tiles[name] = last_run()["tiles_visited"]
    assert 0.5 < tiles["causal"] / tiles["full"] < 0.6
    assert tiles["window"] / tiles["full"] < 0.2


def test_a_mask_array_skips_no_tiles():
    q, k, v = qkv(batch=(1,), heads=1, kv_heads=1, L=300, S=300, E=8)
    mx.eval(flash_attention(q, k, v))
    plain = last_run()
    mx.eval(flash_attention(q, k, v, mask=random_mask(300, 300)))
    assert last_run()["tiles_total"] == plain["tiles_total"]
