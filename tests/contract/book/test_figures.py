"""A figure of a chapter that names a record is in that record, and has its date."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from ...support.processes.child import ROOT

RECORD = re.compile(r"`(benches/results/[\w/-]+\.json)`")
UNIT = r"ms|µs|s|%|MB|GB/s|GFLOP/s|tok/s|(?:tokens )?a second|times as long"
FIGURE = re.compile(rf"(\d+(?:\.\d+)?) ?({UNIT})(?!\w|\.\d)")
GROUP = re.compile(r"--rows (\w+)")
COMPUTED = {"2.0 s", "46 MB", "17.0 GFLOP/s", "15 %"}  # from figures of records
PARAGRAPHS = [
    pytest.param(
        paragraph, id=f"{path.parent.name}/{path.stem}-{RECORD.findall(paragraph)[0].split('/')[-1]}"
    )
    for path in sorted([*(ROOT / "book").glob("*/*.md"), *(ROOT / "docs").glob("*.md")])
    for paragraph in re.split(r"\n\n(?!\|)", path.read_text())  # with the table that follows it
    if RECORD.search(paragraph)
]
MACHINE = re.compile(r"EPYC|Zen \d|Xeon|H[12]00")
DATE = re.compile(r"[A-Z][a-z]+ 20\d\d|20\d\d-\d\d-\d\d")
SECTIONS = [
    pytest.param(section, id=f"{path.name}-{section.splitlines()[0].lstrip('# ')}")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for section in path.read_text().split("\n## ")
    if MACHINE.search(section) and FIGURE.search(section)
]
# Records have seconds, but servers report milliseconds.
FACTORS = {
    "s": (1, 1e-3),
    "ms": (1e3, 1),
    "µs": (1e6,),
    "%": (100,),
    "MB": (1e-6,),
    "GB/s": (1e-9,),
    "GFLOP/s": (1e-9,),
}


def numbers(value: Any) -> Iterator[float]:
    """All numbers of a record."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from numbers(each)
    elif isinstance(value, int | float):
        yield value


def rates(record: dict[str, Any]) -> Iterator[float]:
    """Tokens a second: a row has the tokens of a sample."""
    for row in record["rows"]:
        for contestant in row["contestants"]:
            yield row["tokens"] / contestant["seconds"]["median"]


@pytest.mark.parametrize("paragraph", PARAGRAPHS)
def test_the_date_is_that_of_the_record(paragraph):
    for name in RECORD.findall(paragraph):
        measured = datetime.fromisoformat(json.loads((ROOT / name).read_text())["measured"])
        assert f"{measured.day} {measured:%B %Y}" in paragraph


@pytest.mark.parametrize("paragraph", PARAGRAPHS)
def test_figures_are_those_of_the_record(paragraph):
    record = json.loads((ROOT / RECORD.findall(paragraph)[0]).read_text())
    group = GROUP.search(paragraph)
    record["rows"] = [row for row in record["rows"] if group is None or row["group"] == group[1]]
    found, recorded = FIGURE.findall(paragraph), list(numbers(record["rows"]))
    assert found
    wrong = []
    for text, unit in found:
        digits = len(text.partition(".")[2])
        values = rates(record) if unit.endswith("a second") else recorded
        factors = FACTORS.get(unit, (1,))
        is_there = any(f"{value * factor:.{digits}f}" == text for value in values for factor in factors)
        if not is_there and f"{text} {unit}" not in COMPUTED:
            wrong.append(f"{text} {unit}")
    assert wrong == []


@pytest.mark.parametrize("section", SECTIONS)
def test_figures_of_a_machine_have_a_date(section):
    assert DATE.search(section)
