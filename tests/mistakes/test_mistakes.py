"""The tests of a chapter find mistakes of learners early and by name; each mistake is made in a copy."""

import re
import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import mlx.core as mx
import pytest

from tools.learner import extension
from tools.learner.workspace import KERNELS, NO_KERNELS, SWITCH

from ..metal.harness.toolchain import working_compiler
from ..support.processes.tools import cpp_compiler
from . import (
    attention,
    caches,
    drafts,
    generation,
    http,
    kernels,
    layers,
    measuring,
    packed_steps,
    pages,
    prefixes,
    scheduling,
    structured,
)
from .mistake import Mistake, Table
from .pytest_forks import PytestForks

ROOT = Path(__file__).resolve().parents[2]
TABLES = (
    attention, layers, generation, caches, kernels, pages,
    packed_steps, scheduling, prefixes, drafts, structured, http, measuring,
)  # fmt: skip
MISTAKES: Table = dict(sorted(item for table in TABLES for item in table.MISTAKES.items()))
# A learner's layers run their own Python code, not our kernels.
READABLE_LAYERS = Mistake(
    "layers use no kernels", SWITCH, KERNELS, NO_KERNELS, "no test: it is made before all others"
)
MOST_BEFORE = 20  # cases of the task that may pass before the mistake is found

pytestmark = pytest.mark.slow


class Verdict(NamedTuple):
    """The number of cases that passed, the name of the test that then failed, and pytest's output."""

    passed: int
    failed: str | None
    output: str


class Tree:
    """A copy of the package and its tests, in which the mistakes are made one at a time."""

    def __init__(self, folder: Path):
        self.root = folder
        # Compiled Python comes along, or each process that runs a chapter would compile hundreds of modules.
        # A file that is changed has another time than its compiled form says.
        unread = shutil.ignore_patterns("mistakes", "packaging", "*.safetensors")
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, folder / name, ignore=unread)
        for name in ("pyproject.toml", "conftest.py"):  # which ends a test that hangs
            shutil.copy(ROOT / name, folder)
        self.make(READABLE_LAYERS)
        self.variables: dict[str, str] = {}
        packages = folder / "src"
        paths = [packages, packages / "extensions", folder, sysconfig.get_path("purelib")]
        self._forks = PytestForks(folder, [str(path) for path in paths])

    def close(self) -> None:
        self._forks.close()

    def make(self, mistake: Mistake) -> str:
        """Make a mistake; returns the old text of the file."""
        path = self.root / "src" / mistake.file
        right = path.read_text()
        path.write_text(mistake.applied(right))
        return right

    def test(self, chapter: str, words: str) -> Verdict:
        """Run the tests of a chapter that `words` select."""
        command = ["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", "-k", words]
        status, output = self._forks.run([*command, f"tests/test_{chapter}.py"], self.variables)
        passed = re.search(r"(\d+) passed", output)
        failed = re.search(r"^FAILED \S*?::(\S+)", output, flags=re.MULTILINE)
        assert status in (0, 1), output
        assert failed or status == 0, output
        return Verdict(int(passed[1]) if passed else 0, failed[1] if failed else None, output)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    with closing(Tree(tmp_path_factory.mktemp("learner"))) as tree:
        yield tree


def need_compiler(*mistakes: Mistake) -> None:
    """Without a GPU, mistakes in Metal kernels need a compiler for the harness; skip the test without one."""
    if not mx.metal.is_available() and any("metal" in mistake.file for mistake in mistakes):
        working_compiler()


@pytest.mark.parametrize("chapter", MISTAKES)
def test_without_mistakes_the_tests_pass(tree, chapter):
    need_compiler(*MISTAKES[chapter])
    found_by = sorted({mistake.caught_by for mistake in MISTAKES[chapter]})
    verdict = tree.test(chapter, " or ".join(f"({' and '.join(words.split())})" for words in found_by))
    assert verdict.failed is None, verdict.output
    assert verdict.passed >= len(found_by), verdict.output


def each(table: Table) -> list[object]:
    return [
        pytest.param(chapter, mistake, id=f"{chapter}-{mistake.name}")
        for chapter, mistakes in table.items()
        for mistake in mistakes
    ]


@pytest.mark.parametrize(("chapter", "mistake"), each(MISTAKES))
def test_a_mistake_is_found_early_and_by_name(tree, chapter, mistake):
    need_compiler(mistake)
    right = tree.make(mistake)
    try:
        verdict = tree.test(chapter, mistake.task)
    finally:
        (tree.root / "src" / mistake.file).write_text(right)
    assert_found(mistake, verdict)


def assert_found(mistake: Mistake, verdict: Verdict) -> None:
    assert verdict.failed is not None, verdict.output
    assert all(word in verdict.failed for word in mistake.caught_by.split()), verdict.output
    assert verdict.passed <= MOST_BEFORE, verdict.output


@pytest.mark.parametrize(("chapter", "mistake"), each(kernels.NATIVE))
def test_a_mistake_in_a_cpu_kernel_is_found_by_name(tree, chapter, mistake, monkeypatch):
    cpp_compiler()  # skips the test without one
    right = tree.make(mistake)
    try:
        monkeypatch.setattr(tree, "variables", extension.prepare(tree.root / "src"))
        verdict = tree.test(chapter, mistake.task)
    finally:
        (tree.root / "src" / mistake.file).write_text(right)
        extension.prepare(tree.root / "src")
    assert_found(mistake, verdict)
