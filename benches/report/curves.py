"""Records as curves over the sequence length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benches.report.latencies import colour
from benches.report.tables import seconds_text
from tiny_llm_tools.benchmark.pictures import new_figure, svg_text

Record = dict[str, Any]
COLUMNS = 2


def curves(record: Record, panel_of: Callable[[Record], str]) -> str:
    """The medians with the largest number of threads by `length`, in a panel for each text of `panel_of`."""
    most = max(record["threads"])
    rows = [row for row in record["rows"] if row["threads"] == most and row["contestants"]]
    panels: dict[str, list[Record]] = {}
    for row in sorted(rows, key=lambda row: int(row["length"])):
        panels.setdefault(panel_of(row), []).append(row)
    title = f"{record['benchmark']}: median time, {most} threads, {record['cpu']}"
    lines = max(1, -(-len(panels) // COLUMNS))
    with new_figure(8, 1.0 + (2.6 if len(panels) > 1 else 3.6) * lines) as figure:
        grid = figure.subplots(lines, min(COLUMNS, max(1, len(panels))), squeeze=False)
        spare = list(grid.flat)
        for what, shown in panels.items():
            _panel(spare.pop(0), what, shown)
        for axes in spare:
            axes.set_visible(False)
        found = {text: line for axes in grid.flat for line, text in zip(*_legend(axes), strict=True)}
        figure.legend(
            found.values(), found.keys(), loc="outside lower right", ncols=max(len(found), 1), fontsize=8
        )
        figure.suptitle(title, x=0.01, ha="left", fontsize=9)
        return svg_text(figure, title)


def _panel(axes: Any, what: str, rows: list[Record]) -> None:
    lengths = [int(row["length"]) for row in rows]
    for name in dict.fromkeys(c["name"] for row in rows for c in row["contestants"]):
        timed = [(n, c["seconds"]["median"]) for n, row in zip(lengths, rows, strict=True)
                 for c in row["contestants"] if c["name"] == name and c["seconds"]]  # fmt: skip
        if timed:
            axes.plot(*zip(*timed, strict=True), "o-", label=name, color=colour(name), markersize=4)
    axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="time")
    axes.set_xticks(lengths, [str(n) for n in lengths], fontsize=7, rotation=45 if len(lengths) > 8 else 0)
    axes.xaxis.minorticks_off()
    axes.yaxis.set_major_formatter(lambda seconds, _: seconds_text(seconds))
    axes.yaxis.minorticks_off()
    axes.tick_params(axis="y", labelsize=7)
    axes.set_title(what, loc="left", fontsize=8)
    axes.grid(which="major", alpha=0.4)


def _legend(axes: Any) -> tuple[list[Any], list[str]]:
    lines, texts = axes.get_legend_handles_labels()
    return lines, texts
