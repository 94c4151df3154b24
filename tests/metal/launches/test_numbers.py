"""The numbers that `explain` gives equal those of the recorded dispatches and of the kernels' runs."""

from math import ceil

import mlx.core as mx
import numpy as np
import pytest

from ...support.attention.oracle import visible_keys
from ...support.cases import lengths, normal, qkv, random_mask
from ..host import gpu

pytestmark = [
    pytest.mark.skipif(gpu.IS_REAL, reason="a real GPU records nothing"),
    pytest.mark.usefixtures("metal_device"),
]

BARRIERS = 4  # per tile of the prefill kernel
KEYS_PER_SPLIT = 512


def tiles(L, S, heads, rows, keys, q_lens, kv_start, kv_lens, **options):
    """The number of tiles with a visible key over all query heads, and the number of all tiles."""
    visited = 0
    for n_q, start, n_k in zip(q_lens, kv_start, kv_lens, strict=True):
        seen = visible_keys(L, S, n_q=n_q, n_k=n_k, start=start, **options)[:, start:]
        padded = np.zeros((ceil(L / rows) * rows, ceil(S / keys) * keys), bool)
        padded[: seen.shape[0], : seen.shape[1]] = seen
        table = padded.reshape(-1, rows, padded.shape[1] // keys, keys)
        visited += heads * int(table.any(axis=(1, 3)).sum())
    return visited, len(q_lens) * heads * ceil(L / rows) * ceil(S / keys)


PLANS = {"causal": {"causal": True}, "window": {"window": (40, 3)}, "all": {}}
SEQUENCES = {
    "whole": {},
    "ragged": {"q_lens": (30, 2), "kv_start": (5, 17), "kv_lens": (60, 33)},
    "empty": {"kv_lens": (0, 70)},
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("sequences", SEQUENCES)
@pytest.mark.parametrize(
    ("L", "S", "E"), [(40, 90, 64), (65, 90, 128), (33, 100, 200), (3, 90, 64), (2, 1100, 72)]
)
def test_tiles_and_splits(L, S, E, sequences, plan):
    given = SEQUENCES[sequences]
    counts = {"q_lens": (L, L), "kv_start": (0, 0), **given}
    counts["q_lens"] = [min(n, L) for n in counts["q_lens"]]
    counts.setdefault("kv_lens", [S - start for start in counts["kv_start"]])
    options = {**PLANS[plan], **{name: lengths(*counts[name]) for name in given}}
    inputs = qkv(heads=4, kv_heads=2, L=L, S=S, E=E)
    mx.eval(*options.values(), *inputs) if given else mx.eval(inputs)
    explanation = gpu.explain(*inputs, **options)
    record = gpu.attention(*inputs, **options)[2]
    first = record.dispatches[0]
    rows, keys = (32, 32 if E < 128 else 16) if L > 8 else (1, KEYS_PER_SPLIT)
    assert explanation["tile"] == (rows, keys)
    visited, total = tiles(L, S, 4, rows, keys, **counts, **PLANS[plan])
    assert (explanation["tiles_visited"], explanation["tiles_total"]) == (visited, total)
    if L > 8:
        assert record.barriers == [BARRIERS * visited]
    else:
        assert np.prod(first.threadgroups) == total
    assert explanation["splits"] == first.threadgroups[2]
    assert explanation["path"] == f"metal.{first.kernel}"
    assert explanation["schedule"] == ("split" if len(record.kernels) == 2 else "v2")


def columns_first(x):
    """The same numbers, columns first in memory."""
    return mx.contiguous(x.swapaxes(-1, -2)).swapaxes(-1, -2)


def other_batch_order(x):
    return mx.contiguous(x.swapaxes(0, 1)).swapaxes(0, 1)


CALLS = {
    "nothing": lambda q, k, v: ((q, k, v), {}),
    "a query with columns first": lambda q, k, v: ((columns_first(q), k, v), {}),
    "a key with rows backwards": lambda q, k, v: ((q, k[..., ::-1, :], v), {}),
    "keys and values of another batch order": lambda q, k, v: (
        (q, other_batch_order(k), other_batch_order(v)),
        {},
    ),
    "a mask of another batch order": lambda q, k, v: (
        (q, k, v),
        {"mask": other_batch_order(normal(2, 3, 1, 1, k.shape[-2]))},
    ),
    "a mask of one batch axis": lambda q, k, v: ((q, k, v), {"mask": normal(2, 1, 1, 1, k.shape[-2])}),
    "a mask with keys backwards": lambda q, k, v: ((q, k, v), {"mask": random_mask(k.shape[-2])[::-1]}),
    "a mask with columns first": lambda q, k, v: (
        (q, k, v),
        {"mask": columns_first(normal(2, 3, 2, q.shape[-2], k.shape[-2]))},
    ),
    "lengths of another batch order": lambda q, k, v: (
        (q, k, v),
        {"kv_lens": mx.array([[35, 1], [7, 20], [0, 34]]).T},
    ),
    "sinks": lambda q, k, v: ((q, k, v), {"sinks": normal(2)}),
}


COPIED = {
    name
    for name in CALLS
    if name.endswith(("order", "axis")) or name == "a query with columns first" or "backwards" in name
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("L", "S"), [(3, 40), (33, 40), (2, 1100)])
def test_the_bytes_of_copies_and_workspace(L, S, name):
    inputs, options = CALLS[name](*qkv(batch=(2, 3), heads=2, kv_heads=1, L=L, S=S, E=64))
    mx.eval(inputs, list(options.values()))
    explanation = gpu.explain(*inputs, **options)
    with gpu.record_only():
        dispatches = gpu.attention(*inputs, **options)[2].dispatches
    assert explanation["copies_bytes"] == sum(dispatch.copies for dispatch in dispatches)
    assert explanation["workspace_bytes"] == sum(dispatch.temporaries for dispatch in dispatches)
    assert (explanation["copies_bytes"] > 0) == (name in COPIED)
    assert (explanation["workspace_bytes"] > explanation["copies_bytes"]) == (S > KEYS_PER_SPLIT)


@pytest.mark.parametrize("L", [8, 9])
def test_batch_invariance_is_explained_only_where_it_was_asked_for(L):
    inputs = qkv(L=L, S=40, E=64)
    for asked in (False, True):
        explanation = gpu.explain(*inputs, batch_invariant=asked)
        assert explanation["batch_invariant"] is asked
