"""Kernels in a roofline plot: operations per second over operations per byte.

A kernel with few operations per byte is limited by memory, the slope on the left; other kernels are limited
by the multiply units, the flat part. Both limits are measured in the same rounds as the kernels.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from benches.names import TINY_LLM
from tiny_llm_tools.benchmark.pictures import new_figure, svg_text

Record = dict[str, Any]
COLOURS = {"linear": "C0", "packed": "C2", "rows": "C4"}
PEER, ROOF = "C1", "0.35"
MEMORY = 64 * 2**20  # bytes; what is larger is in no cache


def roofline(record: Record) -> str:
    """All kernels of a record with the largest number of threads; those of other libraries are hollow."""
    most = max(record["threads"])
    rows = [row for row in record["rows"] if row["threads"] == most and row["contestants"]]
    title = f"Kernels under the roofline, {most} threads, {record['cpu']}"
    with new_figure(8, 4.8) as figure:
        axes = figure.subplots()
        axes.set(xscale="log", yscale="log", xlabel="operations per byte", ylabel="GFLOP/s")
        axes.set_title(title, loc="left", fontsize=9)
        for group in dict.fromkeys(row["group"] for row in rows):
            points = [point for row in rows if row["group"] == group for point in _points(row, own=True)]
            axes.scatter(*_columns(points), s=22, color=COLOURS.get(group, "C3"), label=group, zorder=3)
        peers = [point for row in rows for point in _points(row, own=False)]
        axes.scatter(
            *_columns(peers), s=22, facecolors="none", edgecolors=PEER, label="MLX, PyTorch", zorder=2
        )
        if rows:
            _draw_roofs(axes, rows)
        axes.grid(which="major", alpha=0.4)
        axes.legend(loc="lower right", fontsize=8)
        return svg_text(figure, title)


def _points(row: Record, *, own: bool) -> list[tuple[float, float]]:
    return [
        (row["flops"] / row["bytes"], c["gflops"])
        for c in row["contestants"]
        if c["gflops"] and (c["name"] == TINY_LLM) == own
    ]


def _columns(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _draw_roofs(axes: Any, rows: list[Record]) -> None:
    """The slope of memory, and a flat part for each element type."""
    far = [row for row in rows if row["bytes"] > MEMORY] or [max(rows, key=lambda row: row["bytes"])]
    bandwidth = median(row["ceilings"]["bandwidth"]["median"] for row in far) / 1e9
    intensities = [row["flops"] / row["bytes"] for row in rows]
    low, high = min(intensities) / 2, max(intensities) * 30
    axes.plot(
        [low, low], [low * bandwidth] * 2, color=ROOF, linewidth=1, label=f"memory: {bandwidth:.0f} GB/s"
    )
    peaks: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row["ceilings"].items():
            if name.startswith("peak"):
                peaks.setdefault(f"{name} {row['row'].split()[0]}", []).append(value["median"] / 1e9)
    for name, values in peaks.items():
        peak = median(values)
        ridge = min(max(peak / bandwidth, low), high)
        axes.plot([low, ridge, high], [low * bandwidth, peak, peak], color=ROOF, linewidth=1)
        axes.annotate(
            f"{name}: {peak:.0f} GFLOP/s",
            (high, peak),
            (0, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8,
        )
