"""`--solution FOLDER`: main, chat, batch-main and bench run the code of a learner."""

from __future__ import annotations

import pytest

from tools.learner.tasks import all_tasks
from tools.learner.workspace import create

from ..support.processes.child import run_python

OTHERS = [("tools/course.py", "chat"), ("batch-main.py",), ("bench.py",)]
QUESTION = ("--prompt", "What is 7 + 5?", "--loader", "week1", "--max-tokens", "3", "--sampler-temp", "0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Everything is written but the loop of week 1 day 6."""
    made = tmp_path_factory.mktemp("learner") / "my_llm"
    create(made, [task for task in all_tasks() if (task.week, task.day) == (1, 6)])
    return made


def test_main_runs_the_code_of_the_folder_and_names_it(folder):
    stopped = run_python("main.py", "--solution", str(folder), *QUESTION)
    assert stopped.stderr.endswith("NotImplementedError: week 1 day 6, task 1: the loop that generates\n")
    loader_with_a_cache = run_python("main.py", f"--solution={folder}", *QUESTION, "--loader", "week2")
    assert loader_with_a_cache.returncode == 0, loader_with_a_cache.stderr
    assert ", my_llm, week2," in loader_with_a_cache.stderr.splitlines()[-1]


@pytest.mark.parametrize("program", OTHERS, ids=" ".join)
def test_other_programs_import_the_folder(folder, program):
    (folder / "tiny_llm" / "cli" / "__init__.py").write_text("raise SystemExit('the code of the folder')\n")
    result = run_python(*program, "--solution", str(folder))
    assert (result.returncode, result.stderr) == (1, "the code of the folder\n")


@pytest.mark.parametrize("program", [("main.py",), *OTHERS], ids=" ".join)
def test_a_folder_without_the_package_is_refused_in_one_sentence(program):
    result = run_python(*program, "--solution", "docs")
    expected = "docs: got no starter files; make them with: pdm run course start --solution docs\n"
    assert (result.returncode, result.stderr) == (1, expected)
