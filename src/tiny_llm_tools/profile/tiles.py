"""Which score tiles a tiled kernel skips, computes, and computes with a mask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tiny_llm.checks.types import check_size, check_type
from tiny_llm.ops.arguments import Window

from .costs import visible_range, window_limits

SKIPPED, COMPUTED, DIAGONAL = 0, 1, 2


@dataclass(frozen=True, slots=True)
class BlockPattern:
    """`tiles[i][j]` is the tile of query block i and key block j.

    0: skipped, no visible key; 1: computed without a mask; 2: computed with a mask, because the diagonal
    or an edge of the window crosses it.
    """

    tiles: tuple[tuple[int, ...], ...]
    block_size: int

    @property
    def total(self) -> int:
        return sum(map(len, self.tiles))

    @property
    def computed(self) -> int:
        return sum(tile != SKIPPED for row in self.tiles for tile in row)

    @property
    def skipped(self) -> int:
        return self.total - self.computed

    @property
    def savings_percent(self) -> float:
        """The share of tiles that is skipped."""
        return 100 * self.skipped / self.total if self.total else 0.0


def block_pattern(
    seq_len: int,
    block_size: int = 64,
    causal: bool = True,
    *,
    kv_len: int | None = None,
    window: Window = None,
) -> BlockPattern:
    """The tiles of attention over `seq_len` queries and `kv_len` keys (default: as many)."""
    name = "block_pattern"
    kv_len = seq_len if kv_len is None else kv_len
    check_size(name, "seq_len", seq_len, minimum=0)
    check_size(name, "kv_len", kv_len, minimum=0)
    check_size(name, "block_size", block_size)
    check_type(name, "causal", causal, bool, "a bool")
    left, right = window_limits(name, causal, window)

    def visible(row: int) -> tuple[int, int]:
        return visible_range(row + kv_len - seq_len, kv_len, left, right)

    key_blocks = [range(at, min(at + block_size, kv_len)) for at in range(0, kv_len, block_size)]
    query_blocks = [range(at, min(at + block_size, seq_len)) for at in range(0, seq_len, block_size)]
    tiles = tuple(
        tuple(_kind(rows, keys, visible, kv_len - seq_len if right == 0 else None) for keys in key_blocks)
        for rows in query_blocks
    )
    return BlockPattern(tiles, block_size)


def _kind(rows: range, keys: range, visible: Callable[[int], tuple[int, int]], offset: int | None) -> int:
    """The kind of one tile; `offset` is the key that query 0 may see last, None if there is no such limit."""
    # Both ends of the visible range grow with the row, so the first and the last row bound all others.
    first, last = visible(rows[0])[0], visible(rows[-1])[1]
    if first > keys[-1] or last < keys[0] or first > last:
        return SKIPPED
    whole = visible(rows[-1])[0] <= keys[0] and visible(rows[0])[1] >= keys[-1]
    on_diagonal = offset is not None and keys[0] <= rows[-1] + offset and rows[0] + offset <= keys[-1]
    return COMPUTED if whole and not on_diagonal else DIAGONAL
