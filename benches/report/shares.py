"""The share of the measured peak that attention reaches, as bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from benches.names import PYTORCH
from tiny_llm_tools.benchmark.pictures import new_figure, svg_text

Record = dict[str, Any]
BAR = 0.4


def shares(record: Record, groups: Collection[str] = ()) -> str:
    """tiny_llm and PyTorch in timed rows, of all groups or of some, with the threads that most rows have."""
    measured = Counter(row["threads"] for row in record["rows"])
    most = max(record["threads"], key=lambda threads: (measured[threads], threads))
    rows = [row for row in record["rows"] if row["threads"] == most and row["contestants"]]
    rows = [row for row in rows if not groups or row["group"] in groups]
    title = f"Attention: share of the measured peak, {most} threads, {record['cpu']}"
    with new_figure(8, 1.0 + 0.19 * len(rows)) as figure:
        axes = figure.subplots()
        for offset, label, found in (
            (-BAR / 2, "tiny-llm", [row["contestants"][0]["share_of_peak"] or 0.0 for row in rows]),
            (BAR / 2, PYTORCH, [_pytorch_share(row) for row in rows]),
        ):
            places = [number + offset for number in range(len(rows))]
            bars = axes.barh(places, [min(share, 1.0) for share in found], BAR, label=label)
            axes.bar_label(bars, [f"{share:.0%}" if share else "" for share in found], padding=2, fontsize=6)
        axes.set_title(title, loc="left", fontsize=9)
        axes.set_yticks(range(len(rows)), [_name(row) for row in rows], fontsize=7)
        axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
        axes.set_xlim(0, 1.1)
        axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        axes.grid(axis="x", alpha=0.4)
        axes.set_axisbelow(True)
        figure.legend(loc="outside lower right", ncols=2, fontsize=8)
        return svg_text(figure, title)


def _name(row: Record) -> str:
    return f"{row['row']}, {row['contestants'][0]['isa']}"


def _pytorch_share(row: Record) -> float:
    return next((c["share_of_peak"] or 0.0 for c in row["contestants"] if c["name"] == PYTORCH), 0.0)
