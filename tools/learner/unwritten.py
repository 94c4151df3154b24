"""A plugin of pytest: the tests of a native task fail while one of its places is empty.

The learner's extension is compiled with our code there, so that tests of other tasks can use it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import native
from .tasks import Task, all_tasks

FOUND = pytest.StashKey[list[tuple[Task, str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--starter-files", type=Path, required=True, help="the learner's folder")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FOUND] = list(_empty_places(config.getoption("--starter-files")))


def _empty_places(folder: Path) -> Iterator[tuple[Task, str]]:
    for task in all_tasks():
        for place in task.places:
            source = (folder / place.file).read_text()
            if not place.is_python and native.unwritten(source, {place.name: task.message}):
                yield task, f"write {place.name} in {folder.name}/{place.file}"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Fail before the test runs."""
    for task, missing in pyfuncitem.config.stash[FOUND]:
        in_file = pyfuncitem.path.name == Path(task.tests).name
        if in_file and pyfuncitem.name.startswith(f"test_task_{task.number}_"):
            pytest.fail(f"{task.message}: {missing}", pytrace=False)
