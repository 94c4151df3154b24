"""The page of results: its summary counts what its tables say, and leads to them."""

import json
import re
from pathlib import Path

import pytest

from benches.page import page
from benches.report import Record, bound, quantity
from benches.summary import summary

RESULTS = sorted((Path(__file__).parent / "results").glob("*.json"))
LINE = re.compile(r"^\| \[(.+)\]\((#.+)\) \| (.+) \| (.+) \| (.+) \| (\d+) of (\d+) \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def records() -> dict[str, Record]:
    return {path.stem: json.loads(path.read_text()) for path in RESULTS}


def test_the_summary_counts_every_verdict_and_leads_to_its_section(records: dict[str, Record]) -> None:
    text = page(records.items())
    titles = re.findall("^#+ (.+)$", text, re.MULTILINE)
    headings = {"#" + re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
    lines = LINE.findall(text)
    verdicts = [t["met"] for record in records.values() for row in record["rows"] for t in row["targets"]]
    assert sum(int(line[5]) for line in lines) == verdicts.count(True)
    assert sum(int(line[6]) for line in lines) == len(verdicts) - verdicts.count(None)
    assert {line[1] for line in lines} <= headings


def test_a_line_of_the_summary_spans_what_was_measured() -> None:
    low, high = (
        {"what": "speed", "relation": ">=", "limit": 2.0, "value": value, "unit": "x", "met": value >= 2}
        for value in (1.5, 3.0)
    )
    unknown = {**low, "value": None, "met": None}
    rows = [
        {"row": name, "group": "decode", "targets": [t]}
        for name, t in zip("abc", (high, low, unknown), strict=True)
    ]
    (line,) = LINE.findall(summary([("Whole models, here", {"rows": rows})]))
    ends = f"{quantity(1.5, 'x')} to {quantity(3.0, 'x')}"
    assert line[2:] == ("decode", f"speed {bound(low)}", ends, "1", "2")
