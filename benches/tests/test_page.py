"""The page of results: its summary counts what its tables say, and leads to them."""

import json
import re
from pathlib import Path

import pytest

from benches.report.page import page
from benches.report.summary import summary
from benches.report.tables import Record

RESULTS = sorted((Path(__file__).parents[1] / "results").glob("*/*.json"))
LINE = re.compile(r"^\| \[(.+)\]\((#.+)\) \| (.+) \| (.+) \| (.+) \| (\d+) of (\d+) \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def records() -> dict[str, Record]:
    return {f"{path.parent.name}-{path.stem}": json.loads(path.read_text()) for path in RESULTS}


def test_the_summary_counts_every_verdict_and_leads_to_its_section(records: dict[str, Record]) -> None:
    text = page(records.items())
    titles = re.findall("^#+ (.+)$", text, re.MULTILINE)
    headings = {"#" + re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
    lines = LINE.findall(text)
    verdicts = [t["met"] for record in records.values() for row in record["rows"] for t in row["targets"]]
    assert sum(int(line[5]) for line in lines) == verdicts.count(True)
    assert sum(int(line[6]) for line in lines) == len(verdicts) - verdicts.count(None)
    assert {line[1] for line in lines} <= headings


def test_a_line_of_the_summary_spans_bounds_and_what_was_measured() -> None:
    speeds = [_row("decode", "x", 2.0, value) for value in (3.0, 1.5, None)]
    rows = [
        *speeds,
        _row("decode", "x", 4.0, 4.5),
        _row("short", "s", 3.0, 2.5),
        _row("short", "s", 2.0, 2.25),
    ]
    first, second, third = LINE.findall(summary([("Models, here", {"rows": rows})]))
    assert first == ("Models, here", "#models-here", "decode", "speed ≥ 2.00x", "1.50x to 3.00x", "1", "2")
    assert second[2:] == ("decode", "speed ≥ 4.00x", "4.50x", "1", "1")
    assert third[2:] == ("short", "speed ≥ 2 s to ≥ 3 s", "2.25 s to 2.5 s", "1", "2")


def _row(group: str, unit: str, limit: float, value: float | None) -> Record:
    met = None if value is None else value >= limit
    target = {"what": "speed", "relation": ">=", "limit": limit, "value": value, "unit": unit, "met": met}
    return {"group": group, "targets": [target]}
