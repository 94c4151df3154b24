"""Imports and includes point one way, and no folder is crowded: the tree, compared with arrows.py."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from ..support.processes.child import ROOT
from . import arrows

PACKAGE = ROOT / "src" / "tiny_llm"
NATIVE = ROOT / "src" / "extensions" / "src"
CPP_PLACES = {name: number for number, line in enumerate(arrows.CPP) for name in line}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


class Arrow(NamedTuple):
    """`user` imports or includes `used`: dotted modules, or paths below NATIVE."""

    user: str
    used: str
    late: bool = False  # inside a function, so not when the module is imported


def python_arrows() -> list[Arrow]:
    modules = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    found = []
    for module, path in modules.items():
        tree = ast.parse(path.read_text())
        late = {id(node) for function in functions(tree) for node in ast.walk(function)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                parts = path.relative_to(PACKAGE).parts[: -node.level]
                base = [*parts, *(node.module or "").split(".")]
                for used in targets([part for part in base if part], node, modules):
                    found.append(Arrow(module, used, id(node) in late))
    return found


def dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def functions(tree: ast.Module) -> Iterator[ast.AST]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def targets(base: list[str], node: ast.ImportFrom, modules: Iterable[str]) -> set[str]:
    """The modules that `from base import a, b` reads: base.a where that is one, else base itself."""
    deeper = {".".join([*base, name.name]) for name in node.names}
    plain = {name for name in deeper if name not in modules}
    return (deeper - plain) | ({".".join(base) or "__init__"} if plain else set())


def room(module: str) -> str:
    return module.partition(".")[0]


def cpp_arrows() -> list[Arrow]:
    sources = [path for path in sorted(NATIVE.rglob("*")) if path.suffix in {".h", ".cpp", ".metal", ".def"}]
    found = []
    for path in sources:
        for name in INCLUDE.findall(path.read_text()):
            near = [base / name for base in (path.parent, NATIVE) if (base / name).is_file()]
            if near:  # else a header of MLX
                used = near[0].resolve().relative_to(NATIVE.resolve())
                found.append(Arrow(path.relative_to(NATIVE).as_posix(), used.as_posix()))
    return found


def cpp_room(file: str) -> str:
    """The folder of a file, or the first one around it that has a place."""
    folders = [folder.as_posix() for folder in Path(file).parents]
    return next(name for name in folders if name in CPP_PLACES or name in arrows.GPU or name == "tests")


def against_the_order(arrows_found: Iterable[Arrow]) -> Counter[tuple[str, str]]:
    """How many #include lines lead from a room to one that it may not use."""
    wrong: Counter[tuple[str, str]] = Counter()
    for arrow in arrows_found:
        user, used = cpp_room(arrow.user), cpp_room(arrow.used)
        if user == "tests" or user == used:
            continue
        if user in arrows.GPU:
            allowed = not used.startswith("cpu")
        elif used in arrows.GPU:
            allowed = user == "." and arrow.user.endswith(".metal")  # a Metal source is read, not linked
        else:
            both, into = {user, used} <= arrows.GRAPH, user in arrows.WITHOUT_GRAPH and used in arrows.GRAPH
            allowed = both or (CPP_PLACES[used] < CPP_PLACES[user] and not into)
        if not allowed:
            wrong[user, used] += 1
    return wrong


def crowded(top: Path = ROOT) -> Iterator[str]:
    """The folders with more than `MOST_ENTRIES` files and folders; hidden and ignored ones do not count."""
    entries = [path for path in top.iterdir() if not (path.name.startswith(".") or ignored(path))]
    if len(entries) > arrows.MOST_ENTRIES:
        yield top.relative_to(ROOT).as_posix()
    for path in entries:
        if path.is_dir():
            yield from crowded(path)


@cache
def ignore_patterns() -> list[str]:
    lines = (ROOT / ".gitignore").read_text().splitlines()
    return [line.rstrip("/") for line in lines if line and not line.startswith("#")]


def ignored(path: Path) -> bool:
    """git itself is not asked: a copy of the tree without it has to pass, too."""
    names = (path.name, "/" + path.relative_to(ROOT).as_posix())
    return any(fnmatch(name, pattern) for name in names for pattern in ignore_patterns())


def test_every_module_has_a_place_in_the_order():
    places = {name for line in arrows.PYTHON for name in line} | arrows.ENTRIES
    assert {room(dotted(path)) for path in PACKAGE.rglob("*.py")} - places == set()


def test_imports_within_the_package_are_relative():
    """Only those are read here."""
    absolute = re.compile(r"^\s*(from|import) tiny_llm\b", re.MULTILINE)
    assert [dotted(path) for path in PACKAGE.rglob("*.py") if absolute.search(path.read_text())] == []


def test_python_imports_point_to_earlier_rooms():
    place = {name: number for number, line in enumerate(arrows.PYTHON) for name in line}
    wrong = [
        f"{arrow.user} imports {arrow.used}"
        for arrow in python_arrows()
        if room(arrow.user) not in arrows.ENTRIES
        and (room(arrow.used) in arrows.ENTRIES or place[room(arrow.used)] > place[room(arrow.user)])
    ]
    assert wrong == []


def test_python_modules_make_no_circle():
    """Late imports count, and those for type checkers alone."""
    graph: dict[str, set[str]] = {}
    for arrow in python_arrows():
        graph.setdefault(arrow.user, set()).add(arrow.used)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_imports_stand_at_the_top_unless_they_have_a_reason():
    late = {(arrow.user, arrow.used) for arrow in python_arrows() if arrow.late}
    assert late == set(arrows.LATE_IMPORTS)


def test_cpp_includes_point_to_earlier_rooms():
    """With fewer than listed, the number in arrows.py goes down: exceptions only shrink."""
    assert dict(against_the_order(cpp_arrows())) == arrows.CPP_EXCEPTIONS


def test_cpp_headers_make_no_circle():
    graph: dict[str, set[str]] = {}
    for arrow in cpp_arrows():
        graph.setdefault(arrow.user, set()).add(arrow.used)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_no_folder_is_crowded():
    assert sorted(crowded()) == sorted(arrows.LARGE_FOLDERS)
