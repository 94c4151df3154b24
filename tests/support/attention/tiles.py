"""How many score tiles hold a visible key, counted from the mask itself."""

from __future__ import annotations

from typing import Any

from .oracle import visible_keys


def tiles_with_a_visible_key(
    L: int, S: int, rows: int, keys: int, group: int = 1, **visibility: Any
) -> tuple[int, int]:
    """(visited, total) with the heads of a GQA group folded into the rows: row r is position r // group."""
    seen = visible_keys(L, S, **visibility)
    visited = 0
    for first in range(0, L * group, rows):
        positions = slice(first // group, (min(first + rows, L * group) - 1) // group + 1)
        visited += sum(bool(seen[positions, key : key + keys].any()) for key in range(0, S, keys))
    return visited, -(-L * group // rows) * -(-S // keys)
