"""Every day of the book has the form of a chapter, and teaches what the timetable says."""

import re

import pytest

from ...support.processes.child import ROOT
from ..project import timetable

BOOK = ROOT / "book"
TIMETABLE = timetable()
DAYS = sorted(BOOK.glob("week*/day*.md"))
OTHERS = sorted([*BOOK.glob("attention/*.md"), *BOOK.glob("machines/*.md")])
TREE = {
    f"/{path.relative_to(ROOT).as_posix()}/"
    for folder in ("src", "docs", "tests", "tools", "benches", "training", "book")
    for path in (ROOT / folder).rglob("*.*")
}
# What each chapter has, in this order.
PARTS = {
    "a title": r"^# \S",
    "a promise": r"^\*\*After this (?:day|chapter) you can\*\* \w",
    "readings": r"^\*\*Readings\.\*\* \S",
    "something to run": r"^```(?:sh|python)$",
    "what goes wrong": r"^## What goes wrong$",
    "a checkpoint": r"^## Checkpoint$",
    "an answer": r"^<details><summary>Answer</summary>$",
    "how the real one differs": r"^## How the real one differs$",
}
each_chapter = pytest.mark.parametrize(
    "path", DAYS + OTHERS, ids=lambda path: f"{path.parent.name}/{path.stem}"
)
each_entry = pytest.mark.parametrize(
    "entry", TIMETABLE, ids=lambda entry: f"{entry['week']}.{entry['days'][0]}"
)


def page(week: int, day: int) -> str:
    return (BOOK / f"week{week}" / f"day{day}.md").read_text()


def section(text: str, heading: str) -> str:
    return re.split(r"^## ", text.split(f"## {heading}\n")[1], maxsplit=1, flags=re.M)[0]


@each_chapter
def test_a_chapter_has_its_parts_in_order(path):
    text = path.read_text()
    found = {name: re.search(pattern, text, re.M) for name, pattern in PARTS.items()}
    assert [name for name, match in found.items() if match is None] == []
    places = [match.start() for match in found.values()]
    assert places == sorted(places)


@pytest.mark.parametrize("path", DAYS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_title_has_the_numbers_of_its_file(path):
    week, day = path.parent.name.removeprefix("week"), path.stem.removeprefix("day")
    assert path.read_text().startswith(f"# Week {week}, day {day}: ")


@each_chapter
def test_mistakes_have_symptoms(path):
    mistakes = section(path.read_text(), "What goes wrong")
    assert "```{mistakes} " in mistakes or "\n| mistake | what you see |\n|---|---|\n" in mistakes


@each_chapter
def test_a_checkpoint_is_a_question_with_an_answer(path):
    checkpoint = section(path.read_text(), "Checkpoint")
    question, answer = checkpoint.split("<details><summary>Answer</summary>")
    assert re.search(r"^\*[^*]+\?.*\*$", question.strip(), re.S)
    assert len(answer.split("</details>")[0].split()) > 4


@each_chapter
def test_the_real_one_is_in_the_tree(path):
    """Names are relative to the project, or short: `pages.py`, `core/mask.h`."""
    text = section(path.read_text(), "How the real one differs")
    named = re.findall(r"`((?:[\w.-]+/)*[\w.-]+(?:/|\.(?:py|cpp|h|metal|md|def)))`", text)
    named += [name for name in re.findall(r"`([\w.-]+(?:/[\w.-]+)+)`", text) if name not in named]
    assert named
    assert [name for name in named if not any(f"/{name.rstrip('/')}/" in place for place in TREE)] == []


@each_entry
def test_every_day_of_the_timetable_has_a_page(entry):
    assert [day for day in entry["days"] if not (BOOK / f"week{entry['week']}/day{day}.md").exists()] == []


@each_entry
def test_tasks_are_those_of_the_timetable(entry):
    week, days = entry["week"], entry["days"]
    texts = [page(week, day) for day in days]
    for text in texts:
        assert re.search(r"^## Tasks?\b", text, re.M)
        assert f"\npdm run test --week {week} --day {days[0]}" in text
    together = "\n".join(texts)
    assert [file for file in entry["files"] if f"`{file}" not in together] == []
    for task in entry.get("task", ()):
        names = [place.split(":")[1].split(".")[-1] for place in task["write"]]
        assert [name for name in names if name not in together] == []
