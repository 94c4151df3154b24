"""What the widgets must show, computed in float64 without the algorithms that they animate."""

from typing import Any

import numpy as np

SIZE, KEYS, TILE = 8, 32, 8


def online_softmax() -> dict[str, Any]:
    """The states after 0 to 4 tiles, each from the plain softmax over the keys so far."""
    c, j = np.arange(SIZE), np.arange(KEYS)[:, None]
    query = ((3 * c + 1) % 8 - 4) / 8
    keys = ((4 * j + 2 * c + 3 * j * c) % 31 - 15) / 16
    values = ((5 * j + 3 * c) % 13 - 6) / 8
    scores = keys @ query
    states, before = [], -np.inf
    for end in range(0, KEYS + 1, TILE):
        m = scores[:end].max(initial=-np.inf)
        weights = np.exp(scores[:end] - m)
        state = {"m": m, "l": weights.sum(), "acc": (weights @ values[:end]).tolist()}
        states.append(state | {"alpha": np.exp(before - m) if end else None})
        before = m
    p = np.exp(scores - scores.max())
    output = (p / p.sum()) @ values
    return {"states": states, "output": output.tolist(), "lse": scores.max() + np.log(p.sum())}


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


def tile_map() -> list[dict[str, Any]]:
    return [{"call": dict(zip(NAMES, call, strict=True)), "counts": tile_counts(*call)} for call in CALLS]


def traffic() -> list[dict[str, Any]]:
    """Bytes counted array by array: (times it moves) x (elements) x 2."""
    rows = []
    for tokens in (128, 256, 1024, 2048, 8192, 32768):
        for tile in (64, 128):
            operand, matrix = 2 * tokens * 32 * 128, 2 * 32 * tokens * tokens
            readings = -(-tokens // tile)
            rows.append(
                {
                    "call": {"tokens": tokens, "heads": 32, "size": 128, "tile": tile},
                    "naive": 4 * operand + 2 * matrix + 2 * matrix,
                    "flash": 4 * operand,
                    "reread": 2 * operand + 2 * readings * operand,
                }
            )
    return rows
