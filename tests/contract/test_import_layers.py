"""Imports and includes follow the layers, and folders are small: the tree, compared with import_layers.py."""

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
from . import import_layers

PACKAGE = ROOT / "src" / "tiny_llm"
TOOLS = ROOT / "src" / "tiny_llm_tools"
LAYERS = {PACKAGE: import_layers.PYTHON, TOOLS: import_layers.TOOLS}
each_package = pytest.mark.parametrize("package", LAYERS, ids=lambda package: package.name)
NATIVE = ROOT / "src" / "extensions" / "src"
CPP_LAYERS = {name: number for number, line in enumerate(import_layers.CPP) for name in line}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


class Edge(NamedTuple):
    """`user` imports or includes `used`: dotted modules, or paths below NATIVE."""

    user: str
    used: str
    late: bool = False  # inside a function, so not when the module is imported


def python_imports(package: Path) -> list[Edge]:
    """The imports of modules of a package by each other."""
    modules = {dotted(path, package): path for path in sorted(package.rglob("*.py"))}
    found = []
    for module, path in modules.items():
        tree = ast.parse(path.read_text())
        late = {id(node) for function in functions(tree) for node in ast.walk(function)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                parts = path.relative_to(package).parts[: -node.level]
                base = [*parts, *(node.module or "").split(".")]
                for used in targets([part for part in base if part], node, modules):
                    found.append(Edge(module, used, id(node) in late))
    return found


def dotted(path: Path, package: Path) -> str:
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def functions(tree: ast.Module) -> Iterator[ast.AST]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def targets(base: list[str], node: ast.ImportFrom, modules: Iterable[str]) -> set[str]:
    """The modules that `from base import a, b` imports: base.a if that is a module, else base itself."""
    deeper = {".".join([*base, name.name]) for name in node.names}
    plain = {name for name in deeper if name not in modules}
    return (deeper - plain) | ({".".join(base) or "__init__"} if plain else set())


def top_package(module: str) -> str:
    return module.partition(".")[0]


def cpp_includes() -> list[Edge]:
    sources = [path for path in sorted(NATIVE.rglob("*")) if path.suffix in {".h", ".cpp", ".metal", ".def"}]
    found = []
    for path in sources:
        for name in INCLUDE.findall(path.read_text()):
            near = [base / name for base in (path.parent, NATIVE) if (base / name).is_file()]
            if near:  # else a header of MLX
                used = near[0].resolve().relative_to(NATIVE.resolve())
                found.append(Edge(path.relative_to(NATIVE).as_posix(), used.as_posix()))
    return found


def cpp_layer(file: str) -> str:
    """The folder of a file, or the nearest parent that is a layer."""
    folders = [folder.as_posix() for folder in Path(file).parents]
    return next(
        name for name in folders if name in CPP_LAYERS or name in import_layers.GPU or name == "tests"
    )


def layer_violations(edges: Iterable[Edge]) -> Counter[tuple[str, str]]:
    """The number of #include lines from a layer to one that it may not use."""
    wrong: Counter[tuple[str, str]] = Counter()
    for edge in edges:
        user, used = cpp_layer(edge.user), cpp_layer(edge.used)
        if user == "tests" or user == used:
            continue
        if user in import_layers.GPU:
            allowed = not used.startswith("cpu")
        elif used in import_layers.GPU:
            allowed = user == "." and edge.user.endswith(".metal")  # a Metal source is read, not linked
        else:
            both = {user, used} <= import_layers.GRAPH
            into = user in import_layers.WITHOUT_GRAPH and used in import_layers.GRAPH
            allowed = both or (CPP_LAYERS[used] < CPP_LAYERS[user] and not into)
        if not allowed:
            wrong[user, used] += 1
    return wrong


def large_folders(top: Path = ROOT) -> Iterator[str]:
    """The folders with more than `MAX_ENTRIES` files and folders; hidden and ignored ones do not count."""
    entries = [path for path in top.iterdir() if not (path.name.startswith(".") or ignored(path))]
    if len(entries) > import_layers.MAX_ENTRIES:
        yield top.relative_to(ROOT).as_posix()
    for path in entries:
        if path.is_dir():
            yield from large_folders(path)


@cache
def ignore_patterns() -> list[str]:
    lines = (ROOT / ".gitignore").read_text().splitlines()
    return [line.rstrip("/") for line in lines if line and not line.startswith("#")]


def ignored(path: Path) -> bool:
    """Without git, because a copy of the tree without it has to pass, too."""
    names = (path.name, "/" + path.relative_to(ROOT).as_posix())
    return any(fnmatch(name, pattern) for name in names for pattern in ignore_patterns())


@each_package
def test_every_module_has_a_layer(package):
    names = {name for line in LAYERS[package] for name in line} | import_layers.ENTRIES
    assert {top_package(dotted(path, package)) for path in package.rglob("*.py")} - names == set()


@pytest.mark.parametrize(("package", "names"), [(PACKAGE, "tiny_llm(_tools)?"), (TOOLS, "tiny_llm_tools")])
def test_imports_within_a_package_are_relative_and_tiny_llm_imports_no_tools(package, names):
    """`python_imports` finds relative imports only."""
    absolute = re.compile(rf"^\s*(from|import) {names}\b", re.MULTILINE)
    assert [str(path) for path in package.rglob("*.py") if absolute.search(path.read_text())] == []


@each_package
def test_python_imports_point_to_earlier_layers(package):
    layer = {name: number for number, line in enumerate(LAYERS[package]) for name in line}
    wrong = []
    for edge in python_imports(package):
        user, used = top_package(edge.user), top_package(edge.used)
        if user not in import_layers.ENTRIES and (used in import_layers.ENTRIES or layer[used] > layer[user]):
            wrong.append(f"{edge.user} imports {edge.used}")
    assert wrong == []


@each_package
def test_python_imports_have_no_cycle(package):
    """Late imports count, and those for type checkers alone."""
    graph: dict[str, set[str]] = {}
    for edge in python_imports(package):
        graph.setdefault(edge.user, set()).add(edge.used)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_only_the_course_runs_its_loops():
    """Everything else stands on the engine."""
    edges = [edge for edge in python_imports(PACKAGE) if edge.used in import_layers.LOOPS]
    assert {edge.user for edge in edges} <= import_layers.RUN_LOOPS


def test_imports_stand_at_the_top_unless_they_have_a_reason():
    late = {(edge.user, edge.used) for edge in python_imports(PACKAGE) + python_imports(TOOLS) if edge.late}
    assert late == set(import_layers.LATE_IMPORTS)


def test_cpp_includes_point_to_earlier_layers():
    """With fewer than listed, the number in import_layers.py goes down: exceptions only shrink."""
    assert dict(layer_violations(cpp_includes())) == import_layers.CPP_EXCEPTIONS


def test_cpp_includes_have_no_cycle():
    graph: dict[str, set[str]] = {}
    for edge in cpp_includes():
        graph.setdefault(edge.user, set()).add(edge.used)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_large_folders_are_listed():
    assert sorted(large_folders()) == sorted(import_layers.LARGE_FOLDERS)
