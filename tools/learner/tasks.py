"""The tasks of the course, from course.toml."""

import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Place(NamedTuple):
    """A function that a learner writes, or a region of C++ or Metal code."""

    file: str  # below src
    name: str  # such as RoPE._rotate

    @property
    def is_python(self) -> bool:
        return self.file.endswith(".py")


class Task(NamedTuple):
    week: int
    day: int  # the first day of its chapter
    number: int
    title: str
    hint: str
    places: tuple[Place, ...]

    @property
    def label(self) -> str:
        return f"week {self.week} day {self.day}, task {self.number}"

    @property
    def message(self) -> str:
        """What an emptied place says."""
        return f"{self.label}: {self.title}"

    @property
    def tests(self) -> str:
        return f"tests/test_week_{self.week}_day_{self.day}.py"


def all_chapters() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads((ROOT / "course.toml").read_text())["chapter"]
    return found


def first_day(week: int | None, day: int | None) -> int | None:
    """The first day of the chapter that has this day: tests and tasks are listed under it."""
    found = [each["days"][0] for each in all_chapters() if each["week"] == week and day in each["days"]]
    return found[0] if found else day


def all_tasks() -> list[Task]:
    return [
        Task(
            chapter["week"],
            chapter["days"][0],
            task["number"],
            task["title"],
            task["hint"],
            tuple(Place(*place.split(":")) for place in task["write"]),
        )
        for chapter in all_chapters()
        for task in chapter.get("task", ())
    ]


def messages_by_file(tasks: Iterable[Task]) -> dict[str, dict[str, str]]:
    """File -> the names of its places -> what they say while they are empty."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for task in tasks:
        for place in task.places:
            found[place.file][place.name] = task.message
    return found
