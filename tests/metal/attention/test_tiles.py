"""The prefill kernel visits only tiles in which some row sees a key."""

import numpy as np
import pytest

from ...support.attention.oracle import visible_keys
from ...support.cases import lengths, qkv
from .run import FastCall, compiled

ROWS = 32
BARRIERS = 4  # per tile


def visited(L, S, E=64, **options):
    call = FastCall(*qkv(batch=(1,), heads=1, kv_heads=1, L=L, S=S, E=E), **options)
    assert call.run("prefill").reports == []
    return compiled(call.source, call.launch("prefill").kernel).barriers / BARRIERS


def needed(L, S, keys=32, **options):
    """The number of tiles with a visible key; tiles are counted from the first key of the sequence."""
    seen = visible_keys(L, S, **options)[:, options.get("start", 0) :]
    padded = np.zeros((-(-L // ROWS) * ROWS, -(-S // keys) * keys), bool)
    padded[: seen.shape[0], : seen.shape[1]] = seen
    return padded.reshape(-1, ROWS, padded.shape[1] // keys, keys).any(axis=(1, 3)).sum()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 31, 32, 33, 64, (40, 8)], ids=str)
@pytest.mark.parametrize(("L", "S"), [(100, 200), (130, 130), (60, 20)])
def test_tiles_without_a_visible_key_are_not_visited(L, S, window, causal):
    options = {"causal": causal, "window": window}
    assert visited(L, S, **options) == needed(L, S, **options)


@pytest.mark.parametrize(("E", "keys"), [(96, 32), (128, 16), (256, 16)])
def test_tiles_of_other_head_sizes(E, keys):
    assert visited(70, 100, E, causal=True) == needed(70, 100, keys, causal=True)


def test_lengths_limit_the_visited_tiles():
    given = {"q_lens": lengths(50), "kv_start": lengths(13), "kv_lens": lengths(75)}
    assert visited(100, 200, window=40, **given) == needed(100, 200, window=40, n_q=50, start=13, n_k=75)


@pytest.mark.slow
@pytest.mark.parametrize(("L", "S", "tiles"), [(60, 60, 3), (1024, 1024, 528)])
def test_a_causal_mask_skips_almost_half_of_the_tiles(L, S, tiles):
    assert visited(L, S, causal=True) == tiles
