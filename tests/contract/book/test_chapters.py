"""Every day of the book has the form of a chapter, and teaches what the timetable says."""

import re

import pytest

from ...support.processes.child import ROOT
from ..project import timetable

BOOK = ROOT / "book"
DAYS = sorted(BOOK.glob("week[123]/day*.md"))
TIMETABLE = timetable()
# What each day has, in this order.
PARTS = {
    "a title": r"^# Week \d+, day \d+: \S.*$",
    "a promise": r"^\*\*After this day you can\*\* \w",
    "readings": r"^\*\*Readings\.\*\* \S",
    "tasks or an experiment": r"^## (?:Tasks?|Experiments?)\b",
    "what goes wrong": r"^## What goes wrong$",
    "a checkpoint": r"^## Checkpoint$",
    "an answer": r"^<details><summary>Answer</summary>$",
    "how the real one differs": r"^## How the real one differs$",
}
each_day = pytest.mark.parametrize("path", DAYS, ids=lambda path: f"{path.parent.name}/{path.stem}")
each_chapter = pytest.mark.parametrize(
    "chapter", TIMETABLE, ids=lambda chapter: f"{chapter['week']}.{chapter['days'][0]}"
)


def page(week: int, day: int) -> str:
    return (BOOK / f"week{week}" / f"day{day}.md").read_text()


def week_and_day(path) -> tuple[int, int]:
    return int(path.parent.name.removeprefix("week")), int(path.stem.removeprefix("day"))


def section(text: str, heading: str) -> str:
    return re.split(r"^## ", text.split(f"## {heading}\n")[1], maxsplit=1, flags=re.M)[0]


@each_day
def test_a_day_has_its_parts_in_order(path):
    text = path.read_text()
    found = {name: re.search(pattern, text, re.M) for name, pattern in PARTS.items()}
    assert [name for name, match in found.items() if match is None] == []
    places = [match.start() for match in found.values()]
    assert places == sorted(places)


@each_day
def test_a_title_has_the_numbers_of_its_file(path):
    week, day = week_and_day(path)
    assert path.read_text().startswith(f"# Week {week}, day {day}: ")


@each_day
def test_mistakes_have_symptoms(path):
    mistakes = section(path.read_text(), "What goes wrong")
    assert "```{mistakes} " in mistakes or "\n| mistake | what you see |\n|---|---|\n" in mistakes


@each_day
def test_a_checkpoint_is_a_question_with_an_answer(path):
    checkpoint = section(path.read_text(), "Checkpoint")
    question, answer = checkpoint.split("<details><summary>Answer</summary>")
    assert re.search(r"^\*[^*]+\?.*\*$", question.strip(), re.S)
    assert len(answer.split("</details>")[0].split()) > 4


@each_day
def test_the_real_one_is_in_the_tree(path):
    named = re.findall(r"`([\w.-]+(?:/[\w.-]+)+/?)`", section(path.read_text(), "How the real one differs"))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


@each_chapter
def test_every_day_of_the_timetable_has_a_page(chapter):
    missing = [day for day in chapter["days"] if not (BOOK / f"week{chapter['week']}/day{day}.md").exists()]
    assert missing == []


@each_chapter
def test_tasks_are_those_of_the_timetable(chapter):
    week, days = chapter["week"], chapter["days"]
    texts = [page(week, day) for day in days]
    for text in texts:
        assert f"\npdm run test --week {week} --day {days[0]}" in text
    together = "\n".join(texts)
    assert [file for file in chapter["files"] if f"`{file}" not in together] == []
    for task in chapter.get("task", ()):
        names = [place.split(":")[1].split(".")[-1] for place in task["write"]]
        assert [name for name in names if name not in together] == []


def test_a_day_without_tests_has_something_to_run():
    with_tests = {(chapter["week"], day) for chapter in TIMETABLE for day in chapter["days"]}
    without = [path for path in DAYS if week_and_day(path) not in with_tests]
    idle = [path for path in without if not re.search(r"^```(?:sh|python)$", path.read_text(), re.M)]
    assert idle == []
