"""Records as a line for each contestant: median, tails, speedup, error and memory."""

from __future__ import annotations

from typing import Any

from benches.names import (
    ALONE,
    DENSE,
    GATHERED,
    GQA,
    MX_FAST,
    NAIVE,
    NAIVE_TILE,
    NO_WINDOW,
    PADDED,
    PADDED_LENGTHS,
    PYTORCH,
    STANDARD,
    TINY_LLM,
    V1,
)
from benches.report.tables import label, table, targets_cell
from tiny_llm_tools.benchmark.pictures import new_figure, svg_text

Record = dict[str, Any]
COMPARED = (STANDARD, MX_FAST)
COLOURS = {
    TINY_LLM: "C0", MX_FAST: "C1", STANDARD: "C3", NAIVE: "C3", NAIVE_TILE: "C4", V1: "C2", GQA: "C4",
    DENSE: "C2", GATHERED: "C3", PYTORCH: "C2", NO_WINDOW: "C9", ALONE: "C2", PADDED: "C3",
    PADDED_LENGTHS: "C9",
}  # fmt: skip
OTHER_COLOUR = "C7"
RATES = ("K/V MB", "GB/s")


def latencies(record: Record, compared: tuple[str, ...] = COMPARED, *, rates: bool = False) -> str:
    """A table; `compared` names the contestants whose time is divided by that of the line.

    With `rates` also the bytes of keys and values, and how many of them pass in a second. If rows have
    targets, these are the last column in the first line of a row.
    """
    speedups = [f"over {name}" for name in compared]
    header = ["config", "threads", "implementation", "median ms", "p10", "p90", *speedups]
    header += ["max error", "peak MB", *(RATES if rates else ())]
    lines = [(row, _lines(row, compared, len(header), rates)) for row in record["rows"]]
    if any(row["targets"] for row, _ in lines):
        header.append("targets")
        for row, cells in lines:
            for number, line in enumerate(cells):
                line.append("" if number else targets_cell(row))
    return table(header, [line for _, cells in lines for line in cells])


def _lines(row: Record, compared: tuple[str, ...], width: int, rates: bool) -> list[list[str]]:
    """A line for each contestant, also for a missing one; one line for a row that is not a timing."""
    medians = {c["name"]: c["seconds"]["median"] for c in row["contestants"] if c["seconds"]}
    bases = [medians.get(name) for name in compared]
    found = [
        [label(each), *_cells(each, bases), *(_rate(row, each) if rates else ())]
        for each in row["contestants"]
    ]
    found += [[f"{name}: {why}"] for name, why in row["missing"].items()]
    start = [row["row"], str(row["threads"])]
    return [[*start, *cells, *[""] * (width - len(start) - len(cells))] for cells in found or [[]]]


def _cells(contestant: Record, bases: list[float | None]) -> list[str]:
    error, peak = contestant["absolute_error"], contestant["peak_bytes"]
    ends = [f"{error:.2g}", "" if peak is None else f"{peak / 1e6:.4g}"]
    timed = contestant["seconds"]
    if timed is None:
        return ["wrong result", "", "", *[""] * len(bases), *ends]
    times = [milliseconds(timed[name]) for name in ("median", "p10", "p90")]
    if timed["samples"] == 1:
        times[1:] = ["once", "once"]
    return [*times, *(f"{base / timed['median']:.2f}x" if base else "" for base in bases), *ends]


def _rate(row: Record, contestant: Record) -> list[str]:
    timed, nbytes = contestant["seconds"], row["kv_bytes"]
    return [f"{nbytes / 1e6:.4g}", f"{nbytes / timed['median'] / 1e9:.3g}" if timed else ""]


def milliseconds(seconds: float) -> str:
    """At least three digits, without an exponent."""
    time = seconds * 1e3
    return f"{time:.0f}" if time >= 100 else f"{time:#.3g}"


def bars(record: Record) -> str:
    """The medians with the largest number of threads, on a logarithmic axis."""
    most = max(record["threads"])
    rows = [row for row in record["rows"] if row["threads"] == most and row["contestants"]]
    timed = [{c["name"]: c["seconds"]["median"] for c in row["contestants"] if c["seconds"]} for row in rows]
    names = list(dict.fromkeys(c["name"] for row in rows for c in row["contestants"]))
    title = f"{record['benchmark']}: median time, {most} threads, {record['cpu']}"
    places = _places(timed)
    lowest = places[-1][1] + 1 if places else 1
    with new_figure(8, 1.2 + 0.16 * lowest) as figure:
        axes = figure.subplots()
        for name in names:
            found = [
                (first + list(times).index(name), times[name])
                for (first, _), times in zip(places, timed, strict=True)
                if name in times
            ]
            drawn = axes.barh(
                [place for place, _ in found],
                [seconds * 1e3 for _, seconds in found],
                0.95,
                label=name,
                color=colour(name),
            )
            texts = [milliseconds(seconds) for _, seconds in found]
            axes.bar_label(drawn, texts, padding=2, fontsize=6)
        axes.set(xscale="log", xlabel="ms")
        axes.set_title(title, loc="left", fontsize=9)
        middles = [(first + last) / 2 for first, last in places]
        axes.set_yticks(middles, [row["row"] for row in rows], fontsize=7)
        axes.set_ylim(lowest, -1)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axes.margins(x=0.12)
        axes.grid(axis="x", alpha=0.4)
        axes.set_axisbelow(True)
        figure.legend(loc="outside lower right", ncols=max(len(names), 1), fontsize=8)
        return svg_text(figure, title)


def _places(timed: list[dict[str, float]]) -> list[tuple[int, int]]:
    """The first and the last bar of each row: rows have a gap between them, missing contestants have none."""
    places, first = [], 0
    for times in timed:
        last = first + max(len(times), 1) - 1
        places.append((first, last))
        first = last + 2
    return places


def colour(name: str) -> str:
    """A contestant has one colour in all pictures."""
    return COLOURS.get(name, OTHER_COLOUR)
