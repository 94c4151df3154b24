"""Which tiles the readable V1 and V2 compute, in which order, the states after them, and what is refused."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.course.schedules import flash_attention_v1, flash_attention_v2

from ..support.attention.oracle import visible_keys
from ..support.refusal import refused
from ..support.tolerance import max_error, to_float64


def visits(schedule, L, S, tile, **options):
    seen = []
    q, k = mx.zeros((L, 1)), mx.zeros((S, 1))
    schedule(q, k, k, tile=tile, on_visit=seen.append, **options)
    return [(visit.query_tile, visit.key_tile) for visit in seen]


def test_the_loop_outside_is_over_queries_in_v2_and_over_keys_in_v1():
    one, two = (visits(f, 6, 6, (2, 2), causal=True) for f in (flash_attention_v1, flash_attention_v2))
    assert two == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    assert one == [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (2, 2)]


@pytest.mark.parametrize(
    ("L", "S", "tile", "options", "count"),
    [
        (1024, 1024, (64, 64), {}, 256),
        (1024, 1024, (64, 64), {"causal": True}, 136),
        (1024, 1024, (32, 32), {"causal": True}, 528),
        (1000, 1000, (64, 32), {"causal": True}, 272),
        (128, 1024, (64, 64), {"causal": True}, 31),
        (1024, 128, (64, 64), {"causal": True}, 3),
        (60, 60, (32, 32), {"causal": True}, 3),
        (1024, 1024, (64, 64), {"causal": True, "window": 1}, 16),
        (1024, 1024, (64, 64), {"causal": True, "window": 64}, 31),
        (1024, 1024, (64, 64), {"causal": True, "window": 65}, 31),
        (1024, 1024, (64, 64), {"causal": True, "window": 128}, 45),
        (1024, 1024, (64, 64), {"causal": True, "window": 129}, 45),
        (1024, 1024, (64, 64), {"causal": True, "window": 256}, 70),
        (1024, 1024, (64, 64), {"causal": True, "window": 1024}, 136),
        (1024, 1024, (64, 64), {"window": 64}, 46),
        (1024, 1024, (64, 64), {"window": 128}, 46),
        (1024, 1024, (64, 64), {"window": 256}, 74),
    ],
    ids=str,
)
def test_only_tiles_with_a_visible_key_are_computed(schedule, L, S, tile, options, count):
    seen = visits(schedule, L, S, tile, **options)
    assert len(set(seen)) == len(seen) == count
    visible = visible_keys(L, S, **options)
    rows, keys = tile
    assert all(visible[i * rows : (i + 1) * rows, j * keys : (j + 1) * keys].any() for i, j in seen)


def stepper():
    """One query row, four tiles of eight keys; the query is already multiplied by the scale."""
    c, j = np.arange(8), np.arange(32)[:, None]
    q = ((3 * c + 1) % 8 - 4) / 8
    k = ((4 * j + 2 * c + 3 * j * c) % 31 - 15) / 16
    v = ((5 * j + 3 * c) % 13 - 6) / 8
    return (mx.array(x, mx.float32) for x in (q[None], k, v))


def test_the_states_of_the_online_softmax_are_the_golden_ones(schedule):
    seen = []
    out, lse = schedule(*stepper(), scale=1.0, tile=(1, 8), on_visit=seen.append)
    golden = [  # m, l, alpha, O'[0], O'[3] after each tile
        (0.375, 5.651413550821609, 0, -0.117840916, 0.256456315),
        (0.9921875, 6.6261542212474875, 0.5394595359337269, -0.796665792, 0.978827979),
        (0.9921875, 9.764654720342117, 1, -0.607354039, 1.383042103),
        (1.3203125, 9.911438204289409, 0.7202729799554398, -0.890709109, 1.964400934),
    ]
    for visit, (m, l, alpha, first, fourth) in zip(seen, golden, strict=True):  # noqa: E741
        assert visit.state.m.item() == m
        got = np.array([visit.state.l.item(), visit.alpha.item(), *visit.state.acc[0, [0, 3]].tolist()])
        assert max_error(got, np.array([l, alpha, first, fourth])) <= 2e-6
    final = [-0.089866787285, -0.117183331914, 0.032360477755, 0.198195346962]
    final += [-0.03305219936, -0.121350601002, 0.006746301223, 0.131328372023]
    assert max_error(to_float64(out[0]), np.array(final)) <= 2e-7
    assert max_error(to_float64(lse), np.array([3.6140019643801082])) <= 1e-6


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("query", {"query": mx.zeros((16,))}),
        ("key", {"key": mx.zeros((1, 2, 7, 8))}),
        ("key", {"key": mx.zeros((1, 3, 7, 16))}),
        ("key", {"key": mx.zeros((7, 16))}),
        ("key", {"key": mx.zeros((1, 2, 7, 16), mx.float16)}),
        ("value", {"value": mx.zeros((1, 2, 6, 16))}),
        ("query", {"query": mx.zeros((1, 2, 5, 16), mx.int32)}),
        ("mask", {"mask": mx.zeros((5, 7), mx.int32)}),
        ("mask", {"mask": mx.zeros((5, 6))}),
        ("mask", {"mask": "causal"}),
        ("window", {"window": 0}),
        ("window", {"window": (1, 2, 3)}),
        ("window", {"window": (-2, 0)}),
        ("tile", {"tile": (0, 8)}),
        ("tile", {"tile": (8,)}),
        ("scale", {"scale": float("nan")}),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(schedule, argument, wrong):
    arguments = {
        "query": mx.zeros((1, 2, 5, 16)),
        "key": mx.zeros((1, 2, 7, 16)),
        "value": mx.zeros((1, 2, 7, 16)),
        **wrong,
    }
    with refused(argument, function=schedule.__name__):
        schedule(**arguments)
