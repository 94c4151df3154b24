"""How many threadgroups a GPU starts for packed prompts: by counting, without one."""

from __future__ import annotations

from typing import Any

from benches.report.tables import table
from tiny_llm.course.packed_prompts import naive_tile_tokens

Record = dict[str, Any]
TILE_ROWS = 32
TEXT = """Threadgroups, counted for the kernels of a GPU; nothing here was run on one. 2 sequences x 60
tokens, 32 heads: the one-tile kernel runs (2, 32) = 64 threadgroups, the tiled kernel with 32-row tiles
(2, 32, 2) = 128. Each is ONE launch. The 5-20 µs cost is per launch, so the difference is occupancy and tail,
not 64 extra launches.

The score tile of a threadgroup in float32: 32 x 32 takes 4 KB, 64 x 64 takes 16 KB, 128 x 128 takes 64 KB,
which is more than the 32 KB of threadgroup memory on Metal and the 48 KB of shared memory that CUDA gives by
default."""


def grid(record: Record) -> str:
    """The table of all prompts in a record, under `TEXT`."""
    sizes = dict.fromkeys((row["count"], row["length"], row["heads"], row["D"]) for row in record["rows"])
    header = ["prompts", "one tile: grid", "threadgroups per launch", "launches"]
    header += [f"{TILE_ROWS}-row tiles: grid", "threadgroups per launch", "launches"]
    return f"{TEXT}\n\n{table(header, [_line(*size) for size in sizes])}"


def _line(count: int, length: int, heads: int, D: int) -> list[str]:
    cells = [f"{count} x {length} tokens, {heads} heads"]
    fits = length <= naive_tile_tokens(D)
    cells += _cells(count, heads) if fits else ["does not fit", "", ""]
    return [*cells, *_cells(count, heads, tiles_of(length))]


def tiles_of(length: int) -> int:
    return -(-length // TILE_ROWS)


def _cells(*grid: int) -> list[str]:
    groups = 1
    for size in grid:
        groups *= size
    return [f"({', '.join(map(str, grid))})", str(groups), "1"]
