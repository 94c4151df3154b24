"""The table of `pdm bench gpu`."""

from __future__ import annotations

from benches.names import MLX_LM, TINY_LLM
from benches.report.tables import Record, table


def measured_table(record: Record) -> str:
    """A line for each row; the ratio is above 1 where tiny_llm is better.

    Rows of several runs in one record have the commit of theirs, `run`.
    """
    runs = ["run"] if any("run" in row for row in record["rows"]) else []
    header = ["work", TINY_LLM, MLX_LM, "ratio", "target", *runs]
    return table(header, [_cells(row) + [row[name] for name in runs] for row in record["rows"]])


def _cells(row: Record) -> list[str]:
    theirs, ratio = row.get(MLX_LM), row.get("ratio")
    return [
        row["work"],
        f"{row[TINY_LLM]:.4g} {row['unit']}",
        "" if theirs is None else f"{theirs:.4g} {row['unit']}",
        "" if ratio is None else f"{ratio:.2f}x",
        f"{row['target']}: {'met' if row['met'] else 'missed'}",
    ]
