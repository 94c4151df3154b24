"""Exact counts: visible pairs, operations, bytes and tiles."""

from __future__ import annotations

from typing import Any

import pytest

from tiny_llm import ArgumentError
from tiny_llm_tools.profile import attention_bytes, attention_flops, block_pattern, visible_pairs

from ...support.attention import oracle

SHAPES = [(1, 1), (5, 5), (8, 8), (7, 19), (19, 7), (64, 64), (65, 65), (3, 0), (0, 3)]
WINDOWS: list[Any] = [None, 1, 2, 7, (3, 2), (-1, 0), (0, -1), 100]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pairs_and_tiles_equal_a_count_over_the_table(
    shape: tuple[int, int], causal: bool, window: Any
) -> None:
    q_len, k_len = shape
    table = oracle.visible_keys(q_len, k_len, causal=causal, window=window)
    assert visible_pairs(q_len, k_len, causal=causal, window=window) == table.sum()
    for size in (1, 4, 64):
        pattern = block_pattern(q_len, size, causal, kv_len=k_len, window=window)
        blocks = [
            [table[row : row + size, key : key + size] for key in range(0, k_len, size)]
            for row in range(0, q_len, size)
        ]
        assert [[tile != 0 for tile in row] for row in pattern.tiles] == [
            [bool(block.any()) for block in row] for row in blocks
        ]
        for tiles, row in zip(pattern.tiles, blocks, strict=True):
            assert all(block.all() for tile, block in zip(tiles, row, strict=True) if tile == 1)
            partly = [block.any() and not block.all() for block in row]
            assert all(tile == 2 for tile, some in zip(tiles, partly, strict=True) if some)


# sequence length -> total, computed and skipped blocks of 64, and the share that is skipped
EFFICIENCY = {
    0: (0, 0, 0, 0),
    1: (1, 1, 0, 0),
    64: (1, 1, 0, 0),
    65: (4, 3, 1, 25),
    512: (64, 36, 28, 43.75),
    1000: (256, 136, 120, 46.875),
    1024: (256, 136, 120, 46.875),
    2048: (1024, 528, 496, 48.4375),
    4096: (4096, 2080, 2016, 49.21875),
    8192: (16384, 8256, 8128, 49.609375),
}


@pytest.mark.parametrize("length", EFFICIENCY)
def test_causal_tiles_of_64(length: int) -> None:
    found = block_pattern(length)
    assert (found.total, found.computed, found.skipped, found.savings_percent) == EFFICIENCY[length]
    whole = block_pattern(length, causal=False)
    assert (whole.computed, whole.skipped) == (whole.total, 0)


@pytest.mark.parametrize(
    ("window", "causal", "computed"),
    [(1, True, 16), (64, True, 31), (65, True, 31), (128, True, 45), (129, True, 45), (256, True, 70),
     (1024, True, 136), (64, False, 46), (128, False, 46), (256, False, 74)],
)  # fmt: skip
def test_tiles_of_a_window(window: int, causal: bool, computed: int) -> None:
    assert block_pattern(1024, 64, causal, window=window).computed == computed


def test_the_diagonal_is_marked_where_a_causal_mask_is_needed() -> None:
    assert block_pattern(10, 4).tiles == ((2, 0, 0), (1, 2, 0), (1, 1, 2))
    assert block_pattern(3, 1).tiles == ((2, 0, 0), (1, 2, 0), (1, 1, 2))
    assert block_pattern(10, 4, causal=False).tiles == ((1, 1, 1),) * 3
    # A window of 4 keys: its left edge crosses the block left of the diagonal.
    assert block_pattern(12, 4, window=4).tiles == ((2, 0, 0), (2, 2, 0), (0, 2, 2))


def test_operations_count_visible_pairs_only() -> None:
    assert attention_flops(2, 3, 100, 64) == (4 * 64 + 5) * 2 * 3 * 100 * 100
    assert attention_flops(2, 3, 100, 64, causal=True) == (4 * 64 + 5) * 2 * 3 * 5050
    assert attention_flops(1, 1, 100, 8, causal=True, window=10) == (4 * 8 + 5) * (45 + 91 * 10)


def test_bytes_of_fused_and_naive_attention() -> None:
    size = {"batch_size": 2, "num_heads": 8, "seq_len": 1024, "head_dim": 64}
    assert attention_bytes(**size, element_bytes=2) == 4 * 2 * 8 * 1024 * 64 * 2
    assert attention_bytes(**size, element_bytes=2, fused=False) == (
        4 * 2 * 8 * 1024**2 * 2 + 4 * 2 * 8 * 1024 * 64 * 2
    )
    assert attention_bytes(1, 32, 8192, 128, 2, fused=False) == 17_448_304_640  # the lesson's table
    assert attention_bytes(**size, num_kv_heads=2) == 4 * 2 * 1024 * 64 * (2 * 8 + 2 * 2)


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ArgumentError, match="attention_flops: head_dim: got 0, expected at least 1"):
        attention_flops(1, 1, 8, 0)
    with pytest.raises(ArgumentError, match="block_pattern: block_size: got 0, expected at least 1"):
        block_pattern(8, 0)
    with pytest.raises(ArgumentError, match="visible_pairs: window: got 0, expected at least 1"):
        visible_pairs(8, window=0)
    with pytest.raises(ArgumentError, match=r"visible_pairs: window\[0\]: got -2, expected at least -1"):
        visible_pairs(8, window=(-2, 0))
