"""Tables of docutils, from rows of cells: a text, a node, or a list of both with spaces between."""

from collections.abc import Iterable, Sequence
from typing import Any

from docutils import nodes


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> nodes.table:
    group = nodes.tgroup(cols=len(header))
    group += [nodes.colspec(colwidth=1) for _ in header]
    head, body = nodes.thead(), nodes.tbody()
    head += _row(header)
    body += [_row(row) for row in rows]
    group += [head, body]
    made = nodes.table(classes=["colwidths-auto"])
    made += group
    return made


def _row(cells: Sequence[Any]) -> nodes.row:
    made = nodes.row()
    made += [nodes.entry("", nodes.paragraph("", "", *inline(cell))) for cell in cells]
    return made


def inline(cell: Any) -> list[nodes.Node]:
    parts = cell if isinstance(cell, list) else [cell]
    found: list[nodes.Node] = []
    for number, part in enumerate(parts):
        if number and not str(part).startswith(";"):
            found.append(nodes.Text(" "))
        found.append(nodes.Text(part) if isinstance(part, str) else part)
    return found
