"""A figure of a chapter that names a record is in that record."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from ...support.processes.child import ROOT

RECORD = re.compile(r"`(benches/results/[\w-]+/\w+\.json)`")
FIGURE = re.compile(r"(\d+(?:\.\d+)?) ?(ms|µs|s|%|(?:tokens )?a second|times as long)(?!\w|\.\d)")
GROUP = re.compile(r"--rows (\w+)")
COMPUTED = {"2.0 s"}  # from other figures of its sentence
PARAGRAPHS = [
    pytest.param(
        paragraph, id=f"{path.parent.name}/{path.stem}-{RECORD.findall(paragraph)[0].split('/')[-1]}"
    )
    for path in sorted((ROOT / "book").glob("week*/day*.md"))
    for paragraph in path.read_text().split("\n\n")
    if RECORD.search(paragraph)
]
# Records have seconds, but servers report milliseconds.
FACTORS = {"s": (1, 1e-3), "ms": (1e3, 1), "µs": (1e6,), "%": (100,)}


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
