"""What was reached against what the machine allows: one point a kernel under the roof of its measurements.

Along: operations for each byte that must move. Upwards: operations per second. A kernel that computes little
for each byte is as fast as memory delivers at most, the slope on the left; the others end under the flat roof
of the multiply units. Both are read in the same rounds as the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median
from typing import Any

from tiny_llm.benchmark.svg import document, dot, line, rule, text

Record = dict[str, Any]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 520, 70, 30, 90, 50
COLOURS = {"linear": "#0b6e8f", "packed": "#2f8f4e", "rows": "#8a5fb0"}
PEER, ROOF = "#e0914a", "#555"
MEMORY = 64 * 2**20  # what is larger than this lies in no cache


def picture(record: Record) -> str:
    """All kernels of a record, at its largest number of threads; whoever is not ours has no filling."""
    most = max(record["threads"])
    rows = [row for row in record["rows"] if row["threads"] == most and row["contestants"]]
    title = f"Kernels under the roofline, {most} threads, {record['cpu']}"
    shapes = [text(10, 20, title, size=14), *_legend()]
    if not rows:
        return document(WIDTH, HEIGHT, title, shapes)
    plane = _Plane(rows)
    shapes += plane.grid() + _roofs(rows, plane)
    for row in rows:
        for contestant in row["contestants"]:
            if contestant["gflops"]:
                shapes.append(_point(row, contestant, plane))
    return document(WIDTH, HEIGHT, title, shapes)


class _Plane:
    """From intensity and GFLOP/s, both logarithmic, to places in the picture."""

    def __init__(self, rows: list[Record]):
        self.x = _decades(map(_intensity, rows))
        roofs = [seconds["median"] / 1e9 for row in rows for _, seconds in _peaks(row)]
        rates = [c["gflops"] for row in rows for c in row["contestants"] if c["gflops"]]
        self.y = _decades([*roofs, *rates])

    def __call__(self, intensity: float, gflops: float) -> tuple[float, float]:
        across = (math.log10(intensity) - self.x[0]) / (self.x[1] - self.x[0])
        up = (math.log10(gflops) - self.y[0]) / (self.y[1] - self.y[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    def grid(self) -> list[str]:
        shapes = [text(LEFT, HEIGHT - 12, "operations per byte"), text(10, TOP - 12, "GFLOP/s")]
        for power in range(self.x[0], self.x[1] + 1):
            x, bottom = self(10.0**power, 10.0 ** self.y[0])
            shapes += [rule(x, TOP, bottom), text(x, bottom + 16, f"{10.0**power:g}", anchor="middle")]
        for power in range(self.y[0], self.y[1] + 1):
            ends = [self(10.0**x, 10.0**power) for x in self.x]
            shapes += [line(ends, "#ccc"), text(LEFT - 6, ends[0][1] + 4, f"{10.0**power:g}", anchor="end")]
        return shapes


def _roofs(rows: list[Record], plane: _Plane) -> list[str]:
    """The slope of the memory, and a flat roof for each type of number."""
    far = [row for row in rows if row["bytes"] > MEMORY] or [max(rows, key=lambda row: row["bytes"])]
    bandwidth = median(row["ceilings"]["bandwidth"]["median"] for row in far) / 1e9
    low = 10.0 ** plane.x[0]
    shapes = []
    peaks: dict[str, list[float]] = {}
    for row in rows:
        for name, seconds in _peaks(row):
            peaks.setdefault(f"{name} {row['row'].split()[0]}", []).append(seconds["median"] / 1e9)
    for name, values in peaks.items():
        peak = median(values)
        ridge = min(max(peak / bandwidth, low), 10.0 ** plane.x[1])
        start = max(low, 10.0 ** plane.y[0] / bandwidth)
        ends = [(start, start * bandwidth), (ridge, peak), (10.0 ** plane.x[1], peak)]
        shapes.append(line([plane(*end) for end in ends], ROOF))
        x, y = plane(*ends[-1])
        shapes.append(text(x, y - 5, f"{name}: {peak:.0f} GFLOP/s", anchor="end", size=11))
    x, y = plane(low, max(low * bandwidth, 10.0 ** plane.y[0]))
    shapes.append(text(x + 6, y - 8, f"memory: {bandwidth:.0f} GB/s", size=11))
    return shapes


def _peaks(row: Record) -> list[tuple[str, Record]]:
    return [(name, value) for name, value in row["ceilings"].items() if name.startswith("peak")]


def _point(row: Record, contestant: Record, plane: _Plane) -> str:
    ours = contestant["name"] == "ours"
    x, y = plane(_intensity(row), contestant["gflops"])
    share = contestant["share_of_peak"]
    title = f"{row['row']}, {contestant['name']}: {contestant['gflops']:.3g} GFLOP/s, {share:.0%} of the roof"
    return dot(x, y, COLOURS.get(row["group"], ROOF) if ours else PEER, title, filled=ours)


def _legend() -> list[str]:
    shapes, x = [], 16.0
    entries = [(group, colour, True) for group, colour in COLOURS.items()] + [("mlx, PyTorch", PEER, False)]
    for name, colour, filled in entries:
        shapes += [dot(x, 42, colour, name, filled=filled), text(x + 10, 46, name)]
        x += 40 + 7.5 * len(name)
    return shapes


def _intensity(row: Record) -> float:
    intensity: float = row["flops"] / row["bytes"]
    return intensity


def _decades(values: Iterable[float]) -> tuple[int, int]:
    """The whole powers of ten around all values."""
    found = [math.log10(value) for value in values]
    low, high = math.floor(min(found)), math.ceil(max(found))
    return low, max(high, low + 1)
