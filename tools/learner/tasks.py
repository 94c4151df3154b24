"""The tasks of the course, from course.toml."""

import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Place(NamedTuple):
    """A function that a learner writes."""

    file: str  # below src
    name: str  # such as RoPE._rotate


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
    def tests(self) -> str:
        return f"tests/test_week_{self.week}_day_{self.day}.py"


def all_tasks() -> list[Task]:
    chapters = tomllib.loads((ROOT / "course.toml").read_text())["chapter"]
    return [
        Task(
            chapter["week"],
            chapter["days"][0],
            task["number"],
            task["title"],
            task["hint"],
            tuple(Place(*place.split(":")) for place in task["write"]),
        )
        for chapter in chapters
        for task in chapter.get("task", ())
    ]
