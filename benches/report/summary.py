"""All measured targets of a machine: a line for each kind of target in a group of rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from benches.report.tables import Record, bound, quantity, table

HEADER = ["section", "rows", "target", "measured", "met"]
OF_EACH_ROW = ("s", "B")  # times and sizes have a limit of their own in each row


def summary(sections: Iterable[tuple[str, Record]]) -> str:
    """Of records by the titles of their sections."""
    return table(HEADER, [line for title, record in sections for line in _lines(title, record)])


def _lines(title: str, record: Record) -> Iterable[list[str]]:
    kinds: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for row in record["rows"]:
        for target in row["targets"]:
            if target["met"] is not None:
                shared = "" if target["unit"] in OF_EACH_ROW else bound(target)
                kinds[row["group"], target["what"], shared].append(target)
    for (group, what, _), targets in kinds.items():
        met = sum(target["met"] for target in targets)
        limits, measured = f"{what} {_span(targets, 'limit', bound)}", _span(targets, "value", _value)
        yield [f"[{title}](#{_anchor(title)})", group, limits, measured, f"{met} of {len(targets)}"]


def _span(targets: list[Record], key: str, text: Callable[[Record], str]) -> str:
    """The lowest and the highest, or one text if they are equal."""
    ordered = sorted(targets, key=lambda target: float(target[key]))
    return " to ".join(dict.fromkeys(map(text, (ordered[0], ordered[-1]))))


def _value(target: Record) -> str:
    return quantity(target["value"], target["unit"])


def _anchor(title: str) -> str:
    return title.lower().replace(",", "").replace(" ", "-")
