"""What `explain` foretells is what the device was told and what the kernels did, number for number."""

from math import ceil

import mlx.core as mx
import numpy as np
import pytest

from ...support.attention.oracle import visible_keys
from ...support.cases import lengths, normal, qkv, random_mask
from ..host import gpu

pytestmark = pytest.mark.skipif(gpu.IS_REAL, reason="a real GPU takes no notes")

BARRIERS = 4  # of each tile of the kernel for many rows
KEYS_PER_SPLIT = 512


@pytest.fixture(scope="module", autouse=True)
def device():
    gpu.modules()


def tiles(L, S, heads, rows, keys, q_lens, kv_start, kv_lens, **options):
    """Tiles of all query heads that hold a visible key, and all that there are."""
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
    told = gpu.explain(*inputs, **options)
    notes = gpu.attention(*inputs, **options)[2]
    first = notes.dispatches[0]
    rows, keys = (32, 32 if E < 128 else 16) if L > 8 else (1, KEYS_PER_SPLIT)
    assert told["tile"] == (rows, keys)
    visited, total = tiles(L, S, 4, rows, keys, **counts, **PLANS[plan])
    assert (told["tiles_visited"], told["tiles_total"]) == (visited, total)
    if L > 8:
        assert notes.barriers == [BARRIERS * visited]
    else:
        assert np.prod(first.threadgroups) == total
    assert told["splits"] == first.threadgroups[2]
    assert told["path"] == f"metal.{first.kernel}"
    assert told["schedule"] == ("split" if len(notes.kernels) == 2 else "v2")


def turned(x):
    """The same numbers, columns first in memory."""
    return mx.contiguous(x.swapaxes(-1, -2)).swapaxes(-1, -2)


def batch_turned(x):
    return mx.contiguous(x.swapaxes(0, 1)).swapaxes(0, 1)


CALLS = {
    "nothing": lambda q, k, v: ((q, k, v), {}),
    "a turned query": lambda q, k, v: ((turned(q), k, v), {}),
    "a backward key": lambda q, k, v: ((q, k[..., ::-1, :], v), {}),
    "keys and values of another batch order": lambda q, k, v: ((q, batch_turned(k), batch_turned(v)), {}),
    "a mask of another batch order": lambda q, k, v: (
        (q, k, v),
        {"mask": batch_turned(normal(2, 3, 1, 1, k.shape[-2]))},
    ),
    "a mask of one batch axis": lambda q, k, v: ((q, k, v), {"mask": normal(2, 1, 1, 1, k.shape[-2])}),
    "a backward mask": lambda q, k, v: ((q, k, v), {"mask": random_mask(k.shape[-2])[::-1]}),
    "a turned mask": lambda q, k, v: ((q, k, v), {"mask": turned(normal(2, 3, 2, q.shape[-2], k.shape[-2]))}),
    "lengths of another batch order": lambda q, k, v: (
        (q, k, v),
        {"kv_lens": mx.array([[35, 1], [7, 20], [0, 34]]).T},
    ),
    "sinks": lambda q, k, v: ((q, k, v), {"sinks": normal(2)}),
}


COPIED = {name for name in CALLS if name.endswith(("order", "query", "axis")) or "backward" in name}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("L", "S"), [(3, 40), (33, 40), (2, 1100)])
def test_memory_beside_inputs_and_outputs(L, S, name):
    inputs, options = CALLS[name](*qkv(batch=(2, 3), heads=2, kv_heads=1, L=L, S=S, E=64))
    mx.eval(inputs, list(options.values()))
    told = gpu.explain(*inputs, **options)
    with gpu.only_notes():
        dispatches = gpu.attention(*inputs, **options)[2].dispatches
    assert told["copies_bytes"] == sum(dispatch.copies for dispatch in dispatches)
    assert told["workspace_bytes"] == sum(dispatch.temporaries for dispatch in dispatches)
    assert (told["copies_bytes"] > 0) == (name in COPIED)
    assert (told["workspace_bytes"] > told["copies_bytes"]) == (S > KEYS_PER_SPLIT)


@pytest.mark.parametrize("L", [8, 9])
def test_batch_invariance_is_promised_to_who_asks_for_it_alone(L):
    inputs = qkv(L=L, S=40, E=64)
    for asked in (False, True):
        told = gpu.explain(*inputs, batch_invariant=asked)
        assert told["batch_invariant"] is asked
