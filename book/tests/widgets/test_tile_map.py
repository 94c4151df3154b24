"""The map of tiles: its model against pairs counted one by one, and its controls."""

import numpy as np
import pytest

pytestmark = pytest.mark.browser

CALLS = [
    (1024, 1024, 64, 64, True, 0),
    (1024, 1024, 32, 32, True, 0),
    (1000, 1000, 64, 32, True, 0),
    (128, 1024, 64, 64, True, 0),
    (1024, 128, 64, 64, True, 0),
    (1000, 1024, 128, 64, False, 0),
    *((1024, 1024, 64, 64, True, window) for window in (1, 64, 65, 128, 129, 256, 1024)),
    *((1024, 1024, 64, 64, False, window) for window in (64, 128, 256)),
]
NAMES = ("L", "S", "rows", "columns", "causal", "window")


def visible(L: int, S: int, causal: bool, window: int) -> np.ndarray:
    """Which key each query sees, pair by pair."""
    query, key = np.arange(L)[:, None] + S - L, np.arange(S)[None, :]
    seen = np.ones((L, S), bool)
    if causal:
        seen &= key <= query
    if window:
        left, right = (window - 1, 0) if causal else (window // 2, (window - 1) // 2)
        seen &= (query - left <= key) & (key <= query + right)
    return seen


def tile_counts(L: int, S: int, rows: int, columns: int, causal: bool, window: int) -> dict[str, int]:
    seen = visible(L, S, causal, window)
    tiles = [
        seen[top : top + rows, left : left + columns]
        for top in range(0, L, rows)
        for left in range(0, S, columns)
    ]
    visited = sum(bool(tile.any()) for tile in tiles)
    whole = sum(bool(tile.all()) for tile in tiles)
    return {
        "visited": visited,
        "boundary": visited - whole,
        "skipped": len(tiles) - visited,
        "total": len(tiles),
    }


def test_the_model_counts_pairs(run_model):
    run_model(
        "tile_map",
        [{"call": dict(zip(NAMES, call, strict=True)), "counts": tile_counts(*call)} for call in CALLS],
    )


def test_the_map_counts_its_tiles(open_widget):
    tiles = open_widget("week2/day4", "tile_map")
    sentence = tiles.locator(".sentence")
    assert sentence.inner_text() == "256 tiles: 136 computed, 16 of them with the mask; 120 skipped."
    tiles.get_by_label("causal").uncheck()
    assert sentence.inner_text() == "256 tiles: 256 computed, 0 of them with the mask; 0 skipped."
    tiles.get_by_label("causal").check()
    tiles.get_by_label("queries L").focus()
    for _ in range(10):
        tiles.page.keyboard.press("ArrowLeft")
    assert tiles.locator("rect.hidden").count() == 0  # one tile of rows at the end sees all keys
    assert tiles.locator("rect").count() == 16
