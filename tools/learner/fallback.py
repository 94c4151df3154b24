"""A learner's programs do without code that is not written yet, unless a flag asks for it."""

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from . import starter
from .tasks import Task, all_tasks

REFUSED = 2  # as in tiny_llm.cli.exit_codes
TASKS = all_tasks()
KV_CACHE = [task for task in TASKS if (task.week, task.day) == (2, 1)]
FLASH_ATTENTION = [task for task in TASKS if (task.week, task.day, task.number) == (2, 4, 1)]
ENGINE = [task for task in TASKS if (3, 1) <= (task.week, task.day) < (4, 7)]


def option(arguments: Sequence[str], flag: str) -> str | None:
    """The word after the last `flag`, or after its =; None if the flag is not given."""
    value = None
    for word, following in pairwise([*arguments, ""]):
        if word == flag:
            value = following
        elif word.startswith(f"{flag}="):
            value = word.removeprefix(f"{flag}=")
    return value


def with_fallbacks(program: str, arguments: Sequence[str], folder: Path) -> list[str]:
    """The arguments of main.py, bench.py, batch-main.py or chat, with flags that avoid what is not written.

    One line on standard error says which. SystemExit if an argument asks for it.
    """
    loader, added = option(arguments, "--loader"), []
    if loader is None and program != "batch-main.py" and (task := first_unwritten(folder, KV_CACHE)):
        return [*arguments, fallback(folder, task, "--loader=week1")]
    if loader is None and program != "bench.py" and (task := first_unwritten(folder, ENGINE)):
        refuse(("--json-schema", "--regex", "--batch-invariant"), arguments, missing(folder, task))
        added, loader = [fallback(folder, task, "--loader=week2")], "week2"
    if loader not in (None, "week2") or option(arguments, "--no-enable-flash-attn") is not None:
        return [*arguments, *added]
    if task := first_unwritten(folder, FLASH_ATTENTION):
        refuse(("--enable-flash-attn", "--compare"), arguments, missing(folder, task))
        added.append(fallback(folder, task, "--no-enable-flash-attn"))
    return [*arguments, *added]


def first_unwritten(folder: Path, tasks: Sequence[Task]) -> Task | None:
    """The first task of which a place is empty."""
    for task in tasks:
        for place in task.places:
            if starter.unwritten((folder / place.file).read_text(), {place.name: task.message}):
                return task
    return None


def refuse(flags: Sequence[str], arguments: Sequence[str], sentence: str) -> None:
    """End here if one of these flags is given: it asks for what is not written."""
    for flag in flags:
        if option(arguments, flag) is not None:
            print(f"{flag}: {sentence}", file=sys.stderr)
            sys.exit(REFUSED)


def fallback(folder: Path, task: Task, flag: str) -> str:
    print(f"{missing(folder, task)}; this runs with {flag}", file=sys.stderr)
    return flag


def missing(folder: Path, task: Task) -> str:
    return f"{task.label} ({task.title}) is not written in {folder.name} yet"
