"""From which length on a flash kernel is faster than one without tiles."""

from __future__ import annotations

from typing import Any

from benches.names import MX_FAST, NAIVE_TILE, STANDARD, TINY_LLM
from benches.report.curves import curves
from benches.report.latencies import milliseconds
from benches.report.tables import table

Record = dict[str, Any]
HEADER = ["Seq Len", "Naive (ms)", "Flash (ms)", "Winner", "Speedup", "mx.fast (ms)"]
MARK = "*"


def sweep(record: Record) -> str:
    """For each number of threads a table, and the length from which flash stays ahead."""
    parts = []
    for threads in record["threads"]:
        rows = [row for row in record["rows"] if row["threads"] == threads]
        parts += [f"### {threads} thread{'s' if threads > 1 else ''}", table(HEADER, list(map(_line, rows)))]
        length = stays_ahead(rows)
        parts.append(f"First length from which flash stays ahead: {length if length else 'none'}.")
    parts.append(f"Times with {MARK} are those of {STANDARD} attention: a prompt does not fit into one tile.")
    return "\n\n".join(parts)


def picture(record: Record) -> str:
    """All times over the length."""
    return curves(record, lambda row: f"{row['count']} prompts, {row['dtype']}, {row['heads']} heads, causal")


def stays_ahead(rows: list[Record]) -> int | None:
    """The smallest length such that flash is faster at it and at all longer ones."""
    first = None
    for row in sorted(rows, key=lambda row: int(row["length"]), reverse=True):
        naive, flash = _seconds(row, naive_of(row)), _seconds(row, TINY_LLM)
        if naive is None or flash is None or flash >= naive:
            break
        first = int(row["length"])
    return first


def naive_of(row: Record) -> str:
    """The contestant without tiles: one tile where it fits."""
    return STANDARD if NAIVE_TILE in row["missing"] else NAIVE_TILE


def _line(row: Record) -> list[str]:
    naive, flash, fast = (_seconds(row, name) for name in (naive_of(row), TINY_LLM, MX_FAST))
    mark = MARK if naive_of(row) == STANDARD else ""
    winner, speedup = "", ""
    if naive and flash:
        winner = "flash" if flash < naive else "naive"
        speedup = f"{max(naive, flash) / min(naive, flash):.2f}x"
    return [str(row["length"]), _text(naive) + mark, _text(flash), winner, speedup, _text(fast)]


def _text(seconds: float | None) -> str:
    return milliseconds(seconds) if seconds else "wrong result"


def _seconds(row: Record, name: str) -> float | None:
    timed = next((c["seconds"] for c in row["contestants"] if c["name"] == name), None)
    return float(timed["median"]) if timed else None
