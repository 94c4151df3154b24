"""The record of `bench serving` as tables."""

from __future__ import annotations

from itertools import groupby

from benches.report.tables import Record, origin, quantity, table, tally, targets_cell

COLUMNS = {
    "output_throughput": "output tok/s",
    "total_token_throughput": "total tok/s",
    "median_ttft_ms": "ttft ms",
    "p99_ttft_ms": "p99",
    "mean_tpot_ms": "tpot ms",
    "mean_itl_ms": "itl ms",
    "p99_itl_ms": "p99",
}


def page(record: Record) -> str:
    """A table for each group, and how many targets were met."""
    parts = [origin(record)]
    for group, rows in groupby(record["rows"], key=lambda row: row["group"]):
        parts += [f"### {group}: {record['groups'][group]}", _table(list(rows))]
    return "\n\n".join([*parts, tally(record)])


def _table(rows: list[Record]) -> str:
    """A line for each server or way of a row; the targets are in its first line."""
    header = ["row", "threads", "server", "sample", *COLUMNS.values(), "targets"]
    body = []
    for row in rows:
        for number, each in enumerate(row["contestants"]):
            first = [row["row"], str(row["threads"])] if number == 0 else ["", ""]
            figures = row["figures"].get(each["name"], {})
            cells = [_cell(figures.get(key)) for key in COLUMNS]
            targets = targets_cell(row) if number == 0 else ""
            body.append([*first, each["name"], _sample(each), *cells, targets])
        for name, why in row["missing"].items():
            body.append(["", "", f"{name} is missing: {why}", *[""] * (len(header) - 3)])
    return table(header, body)


def _sample(contestant: Record) -> str:
    """The median and the spread of what a row measures, or why there is none."""
    seconds = contestant["seconds"]
    if seconds is None:
        return f"wrong result ({contestant['error']:.0%} of the answers differ)"
    spread = (seconds["high"] - seconds["low"]) / 2 / seconds["median"]
    return f"{quantity(seconds['median'], 's')} ± {spread:.0%}"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
