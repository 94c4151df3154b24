"""The tests of the course by week and day, and the learner's loop.

`pdm run test [--week W --day D] [--solution FOLDER] [-- pytest arguments]`, `pdm run course COMMAND`, and
`pdm run chat [--solution FOLDER] [options]`, which has no script of its own.
"""

import argparse
import os
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
from learner import commands, crash, extension, program, workspace  # noqa: E402

ALL_AT_ONCE = ["-n", "auto", "--dist", "worksteal"]  # all tests take minutes


class Chapter(NamedTuple):
    week: int
    days: list[int]
    title: str
    files: list[str]

    @property
    def tests(self) -> str:
        return f"tests/test_week_{self.week}_day_{self.days[0]}.py"


def timetable() -> list[Chapter]:
    with (ROOT / "course.toml").open("rb") as file:
        chapters = tomllib.load(file)["chapter"]
    return [Chapter(*(chapter[name] for name in Chapter._fields)) for chapter in chapters]


def find_chapter(week: int, day: int) -> Chapter:
    """The chapter of that day; SystemExit with a list of all days if there is none."""
    chapters = timetable()
    for chapter in chapters:
        if chapter.week == week and day in chapter.days:
            return chapter
    known = ", ".join(f"{c.week}.{day}" for c in chapters for day in c.days)
    sys.exit(f"There is no chapter for week {week} day {day}; there is one for (week.day) {known}.")


def selection(week: int | None, day: int | None, folder: str | None) -> list[str]:
    """Arguments for pytest: a chapter, or none for the folder that pyproject.toml names."""
    if week is None and day is None:
        return []
    if week is None or day is None:
        sys.exit("--week and --day belong together: give both, or neither for all tests.")
    chapter = find_chapter(week, day)
    announce(chapter, day, folder)
    return ["-v", chapter.tests]


def announce(chapter: Chapter, day: int, folder: str | None) -> None:
    """What is tested: our code, or that of a learner's folder."""
    first = chapter.days[0]
    print(f"Week {chapter.week} day {day}: {chapter.title}")
    print(f"  code   {', '.join(tested(name, folder) for name in chapter.files)}")
    print(f"  tests  {chapter.tests}", flush=True)
    if day != first:
        print(f"This day continues the chapter of day {first}: running {chapter.tests}.", flush=True)
    if folder is None and (ROOT / commands.FOLDER).is_dir():
        print(f"This tests our code; --solution {commands.FOLDER} tests yours.", flush=True)


def tested(name: str, folder: str | None) -> str:
    return name if folder is None else f"{folder.rstrip('/')}/{name.removeprefix('src/')}"


def run_tests(arguments: list[str]) -> None:
    """End this process as pytest ends: with its exit status."""
    parser = argparse.ArgumentParser(
        prog="pdm run test",
        description="Run all tests, or those of one chapter.",
        epilog="Arguments after -- go to pytest: pdm run test --week 2 --day 4 -- -k task_2",
        allow_abbrev=False,
    )
    parser.add_argument("--week", type=int)
    parser.add_argument("--day", type=int)
    parser.add_argument("--solution", metavar="FOLDER", help="test the starter files in this folder")
    # pdm removes a leading --, so unknown arguments go to pytest even without one.
    split = arguments.index("--") if "--" in arguments else len(arguments)
    options, others = parser.parse_known_args(arguments[:split])
    others += [argument for argument in arguments[split:] if argument != "--"]
    chosen = selection(options.week, options.day, options.solution)
    if not chosen and not others:
        chosen = ALL_AT_ONCE
    os.chdir(ROOT)
    if options.solution is not None:
        folder = commands.existing(options.solution)
        command, environment = workspace.pytest_command(folder, [*chosen, *others])
        sys.exit(crash.run_reporting(folder.name, command, environment))
    # Containers often set it; then each of hundreds of processes compiles the same modules.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *chosen, *others])


def run_chat(arguments: list[str]) -> None:
    """Replace this process by `tiny-llm chat`, with the learner's code if --solution names a folder."""
    chat = ["-m", "tiny_llm", "chat"]
    program.restart_in_solution(chat, arguments)
    os.execv(sys.executable, [sys.executable, *chat, *arguments])


def main() -> int:
    if sys.argv[1:2] == ["test"]:
        run_tests(sys.argv[2:])
    if sys.argv[1:2] == ["chat"]:
        run_chat(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="pdm run course", description=commands.__doc__, allow_abbrev=False)
    commands.add_commands(parser.add_subparsers(required=True))
    options = parser.parse_args()
    return options.run(options)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except extension.build.BuildError as error:
        sys.exit(str(error))
