"""`pdm run course start`, `progress`, `hint` and `solution`."""

import argparse
import difflib
import re
import sys
from pathlib import Path
from typing import NamedTuple

from . import native, starter
from .tasks import ROOT, Place, Task, all_tasks, first_day
from .workspace import create, run_pytest

FOLDER = "my_llm"


class Outcome(NamedTuple):
    """How many tests of a task pass, and how many do not; `stopped` says why none could run."""

    passed: int
    failed: int
    stopped: str = ""

    @property
    def is_solved(self) -> bool:
        return self.passed > 0 and self.failed == 0

    @property
    def text(self) -> str:
        if self.stopped:
            return f"no test runs: {self.stopped}"
        return "solved" if self.is_solved else f"{self.passed} of {self.passed + self.failed} tests pass"


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    start_parser = commands.add_parser("start", help="make starter files: a copy of src, to fill in")
    start_parser.set_defaults(run=start)
    progress_parser = commands.add_parser("progress", help="show which tasks are solved")
    progress_parser.set_defaults(run=progress)
    hint_parser = commands.add_parser("hint", help="say what to write for one task, and where")
    hint_parser.set_defaults(run=hint)
    solution_parser = commands.add_parser("solution", help="show how a task is solved here")
    solution_parser.set_defaults(run=solution)
    for parser in (start_parser, progress_parser, solution_parser):
        parser.add_argument("--solution", default=FOLDER, metavar="FOLDER", help="(default: %(default)s)")
    for parser in (progress_parser, hint_parser, solution_parser):
        needed = parser is not progress_parser
        for name in ("--week", "--day"):
            parser.add_argument(name, type=int, required=needed)
    for parser in (hint_parser, solution_parser):
        parser.add_argument("--task", type=int, required=True)


def start(options: argparse.Namespace) -> int:
    folder = ROOT / options.solution
    if folder.exists():
        sys.exit(f"{options.solution} exists already; name another folder with --solution, or remove it.")
    create(folder)
    first = all_tasks()[0]
    print(f"{options.solution}/ has the starter files. The first task is {first.label}: {first.title}.")
    for place in first.places:
        print(f"  {options.solution}/{place.file}: {place.name}")
    print(f"Test it: pdm run test --solution {options.solution} --week {first.week} --day {first.day}")
    return 0


def progress(options: argparse.Namespace) -> int:
    """One line for each task; exit code 0 also if some are not solved."""
    folder = existing(options.solution)
    day = first_day(options.week, options.day)
    tasks = [task for task in all_tasks() if options.week in (None, task.week) and day in (None, task.day)]
    if not tasks:
        sys.exit(f"There is no task in week {options.week} day {options.day}.")
    solved = 0
    for task in tasks:
        print(f"{task.label:26}  ", end="", flush=True)  # a task may take a minute
        found = outcome(folder, task)
        solved += found.is_solved
        print(f"{found.text:24}  {task.title}", flush=True)
    print(f"{solved} of {len(tasks)} tasks are solved.")
    return 0


def outcome(folder: Path, task: Task) -> Outcome:
    result = run_pytest(folder, ["-q", "--tb=short", "-n", "0", task.tests, "-k", f"task_{task.number}_"])
    found = re.findall(r"(\d+) (passed|failed|errors?)", result.stdout)
    counts = {word: int(number) for number, word in found}
    if result.returncode not in (0, 1):  # not even the imports work, or a kernel crashed
        errors = re.findall(r"^E +(\w+(?:Error|Exception)\b.*)", result.stdout, re.M)
        places = re.findall(rf"({re.escape(folder.name)}/\S+?\.py)(?:\", line |:)(\d+)", result.stdout)
        where = [":".join(places[-1])] if places else []
        return Outcome(0, 1, ": ".join([*where, *errors[-1:]]) or "the tests crashed")
    passed = counts.get("passed", 0)
    return Outcome(passed, sum(counts.values()) - passed)


def hint(options: argparse.Namespace) -> int:
    task = chosen(options)
    if task is None:
        return 0
    print(f"{task.label}: {task.title}\n")
    for place in task.places:
        print(f"  {place.file}: {place.name}")
    print(f"\n{task.hint}")
    return 0


def solution(options: argparse.Namespace) -> int:
    """A diff from the learner's functions to those of the project."""
    task = chosen(options)
    if task is None:
        return 0
    folder = existing(options.solution)
    for place in task.places:
        mine, right = (root / place.file for root in (folder, ROOT / "src"))
        print(
            "".join(
                difflib.unified_diff(
                    text_of(place, mine.read_text()).splitlines(keepends=True),
                    text_of(place, right.read_text()).splitlines(keepends=True),
                    f"{options.solution}/{place.file}",
                    f"src/{place.file}",
                    n=100,
                )
            )
        )
    return 0


def text_of(place: Place, source: str) -> str:
    """The code of a place; empty if the learner has removed or renamed it."""
    language = starter if place.is_python else native
    return language.written(source, place.name) if language.has(source, place.name) else ""


def chosen(options: argparse.Namespace) -> Task | None:
    """The task, or None, which is said, if it has tests but nothing to write; SystemExit if there is none."""
    week, number = options.week, options.task
    day = first_day(week, options.day)
    for task in all_tasks():
        if (task.week, task.day, task.number) == (week, day, number):
            return task
    tests = ROOT / f"tests/test_week_{week}_day_{day}.py"
    if tests.is_file() and f"def test_task_{number}_" in tests.read_text():
        print(
            f"week {week} day {day}, task {number}: nothing to write; read the code that the chapter names."
        )
        print(f"Test it: pdm run test --week {week} --day {options.day} -- -k task_{number}")
        return None
    known = ", ".join(f"{task.week}.{task.day}.{task.number}" for task in all_tasks())
    sys.exit(f"There is no such task; there is one for (week.day.task) {known}.")


def existing(name: str) -> Path:
    folder = ROOT / name
    if not (folder / "tiny_llm").is_dir():
        sys.exit(f"{name}: got no starter files; make them with: pdm run course start --solution {name}")
    return folder
