"""The table of `pdm bench schedules`, and its page."""

from __future__ import annotations

import re

from benches.report.tables import Record, table

HEADER = ["work", "schedule", "path", "tile", "tiles visited", "splits", "as explained"]
HEADER += ["workspace KB", "measured KB", "K/V read KB", "scores, states KB", "math"]
TABLE = re.compile(r"(<!-- schedules: generated -->\n).*?(<!-- end -->)", re.DOTALL)


def schedules_table(record: Record) -> str:
    """A line for each schedule of a shape; path, tiles and splits are counters of the run."""
    return table(HEADER, [_line(row) for row in record["rows"]])


def schedules_page(text: str, record: Record) -> str:
    """docs/schedules.md with a new table."""
    caption = f"Kernels for {record['isa']}; KB are 1000 bytes."
    return TABLE.sub(lambda match: f"{match[1]}\n{schedules_table(record)}\n\n{caption}\n\n{match[2]}", text)


def _line(row: Record) -> list[str]:
    rows, keys = row["tile"]
    sizes = ("workspace_bytes", "measured_bytes", "kv_bytes", "intermediate_bytes")
    return [
        row["work"],
        row["schedule"],
        row["path"],
        f"{rows} x {keys}",
        f"{row['tiles_visited']} of {row['tiles_total']}",
        str(row["splits"]),
        "yes" if row["as_explained"] else "**no**",
        *(f"{row[name] / 1e3:,.0f}" for name in sizes),
        row["math"],
    ]
