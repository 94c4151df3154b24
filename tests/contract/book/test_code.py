"""The code that the course names is there: what tasks leave to a learner, and what pages include."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ...support.processes.child import ROOT
from ..project import timetable

INCLUDED = re.compile(r"^```\{literalinclude\} (\S+\.py)\n(?::.*\n)*?:pyobject: (\S+)$", re.MULTILINE)


@cache
def names(path: Path) -> frozenset[str]:
    """The functions and classes of a module; those of a class with its name before."""

    def found(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield prefix + node.name
                yield from found(node.body, f"{prefix}{node.name}.")

    return frozenset(found(ast.parse(path.read_text()).body, ""))


def test_functions_that_a_task_leaves_are_in_the_tree() -> None:
    places = [place for chapter in timetable() for task in chapter.get("task", ()) for place in task["write"]]
    python = [place.partition(":") for place in places if ".py:" in place]
    assert python
    assert [(path, name) for path, _, name in python if name not in names(ROOT / "src" / path)] == []


def test_functions_that_pages_include_are_in_the_tree() -> None:
    included = [
        (page.parent / path, name)
        for page in (ROOT / "book").rglob("*.md")
        for path, name in INCLUDED.findall(page.read_text())
    ]
    assert included
    assert [(path, name) for path, name in included if name not in names(path)] == []
