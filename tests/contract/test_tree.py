"""Rules for the tree: short scripts, no weeks in names, one timetable, no long files."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from ..support.processes.child import ROOT
from .project import pyproject, timetable

SCRIPTS = ["main.py", "bench.py", "batch-main.py"]
BUILT = ROOT / "src/extensions/tiny_llm_ext/metal"  # the sources of the kernels with their headers
CODE = sorted(
    path
    for folder in ("src", "benches", "tools", "tests", "book")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".h", ".cpp", ".metal", ".cu", ".cuh", ".def"} and path.parent != BUILT
)
LONGEST = {".py": 300, ".h": 400, ".cpp": 400, ".metal": 600, ".cu": 600, ".cuh": 600, ".def": 400}
# Files beyond the limit, and how long they may be.
LONG_FILES = {"tests/test_week_2_day_4.py": 356, "tests/test_week_2_day_6.py": 395}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_is_short_and_does_no_arithmetic(script):
    source = (ROOT / script).read_text()
    assert len(source.splitlines()) <= 20
    assert not [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.BinOp | ast.AugAssign)]


def test_weeks_and_days_are_named_only_in_the_course():
    allowed = re.compile(
        r"tests/(test_week_\d_day_\d|contract/\w+|packaging/test_scripts|mistakes/\w+|utils)\.py"
        r"|book/(extensions|tests|tests/widgets)/\w+\.py|tools/learner/fallback\.py"
        r"|src/tiny_llm/(course/|(qwen2_week\d|qwen3|__init__)\.py)"
    )
    named = re.compile(r"(week|day)_?\d", re.IGNORECASE)
    files = [path for path in CODE if not allowed.match(str(path.relative_to(ROOT)))]
    assert [str(path) for path in files if named.search(path.name) or named.search(path.read_text())] == []


def test_the_timetable_and_the_course_tests_agree():
    planned = {f"test_week_{chapter['week']}_day_{chapter['days'][0]}.py" for chapter in timetable()}
    assert planned == {path.name for path in (ROOT / "tests").glob("test_week_*.py")}


def test_the_files_of_a_chapter_exist():
    files = [name for chapter in timetable() for name in chapter["files"]]
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_files_stay_short():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in CODE}
    limits = {name: LONG_FILES.get(name, LONGEST[Path(name).suffix]) for name in lengths}
    assert {name: length for name, length in lengths.items() if length > limits[name]} == {}


def test_a_class_has_its_name_for_itself():
    """A reader who meets the name knows what it is. The modules of the course have names that are given."""
    package = ROOT / "src/tiny_llm"
    places = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        if path.parent == package:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(package)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_mlx_and_nanobind_have_one_version_in_all_of_pyproject():
    project = pyproject()
    build = project["build-system"]["requires"]
    mlx = {
        requirement
        for requirement in project["project"]["dependencies"]
        if re.match(r"mlx[\[=]", requirement)
    }
    assert mlx
    assert mlx <= set(build)
    (nanobind,) = [requirement for requirement in build if requirement.startswith("nanobind")]
    assert nanobind in project["dependency-groups"]["build"]


def test_a_set_up_for_development_has_the_packages_of_the_server():
    project = pyproject()
    serve = project["project"]["optional-dependencies"]["serve"]
    assert set(serve) <= set(project["dependency-groups"]["test"])


def test_the_lock_file_names_no_host():
    lines = (ROOT / "pdm.lock").read_text().splitlines()
    assert [line for line in lines if "://" in line and not line.startswith("summary = ")] == []
