"""Tables in hand-written pages, between <!-- table: NAME --> and <!-- end -->."""

from __future__ import annotations

import re
from collections.abc import Mapping


def with_tables(operation: str, text: str, tables: Mapping[str, str]) -> str:
    """The page with new tables, each in its one place."""
    for name, new in tables.items():
        marks = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        before, *rest = marks.split(text)
        if len(rest) != 3:
            found = len(rest) // 3
            raise ValueError(f"{operation}: text: got {found} places for the table {name!r}, expected 1")
        start, end, after = rest
        text = f"{before}{start}\n{new}\n\n{end}{after}"
    return text
