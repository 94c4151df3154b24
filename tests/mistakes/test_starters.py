"""Each task of the course: its tests fail in the starter files, and pass with the solution."""

import shutil

import pytest

from tools.learner.starter import emptied
from tools.learner.tasks import Task, all_tasks
from tools.learner.workspace import ROOT, create, messages_by_file, run_pytest

from ..support.processes.child import run_python

TASKS = all_tasks()
pytestmark = pytest.mark.slow


def label(task: Task) -> str:
    return f"week_{task.week}_day_{task.day}_task_{task.number}"


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    """The learner's folder with every task solved."""
    folder = tmp_path_factory.mktemp("learner") / "solved"
    create(folder, tasks=[])
    return folder


@pytest.mark.parametrize("task", TASKS, ids=label)
def test_the_tests_of_a_task_fail_in_its_starter_and_pass_with_its_solution(solved, task):
    selected = [task.tests, "-q", "-x", "--tb=short", "-k", f"task_{task.number}_"]
    right = {}
    try:
        for file, messages in messages_by_file([task]).items():
            right[file] = (solved / file).read_text()
            (solved / file).write_text(emptied(right[file], messages))
        starter = run_pytest(solved, selected)
    finally:
        for file, text in right.items():
            (solved / file).write_text(text)
    assert starter.returncode == 1, starter.stdout + starter.stderr
    assert f"NotImplementedError: {task.label}: {task.title}" in starter.stdout
    solution = run_pytest(solved, selected)
    assert solution.returncode == 0, solution.stdout + solution.stderr


def test_the_learners_loop_by_its_commands():
    name = "build/learner-of-a-test"
    folder = ROOT / name

    def course(*words):
        result = run_python("tools/course.py", *words)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    try:
        assert "The first task is week 1 day 1, task 1" in course("start", "--solution", name)
        assert run_python("tools/course.py", "start", "--solution", name).returncode == 1
        where = ("--week", "1", "--day", "1")
        assert "0 of 2 tasks are solved" in course("progress", "--solution", name, *where)
        assert "basics.py: softmax" in course("hint", *where, "--task", "1")
        diff = course("solution", "--solution", name, *where, "--task", "2")
        assert "-    raise NotImplementedError('week 1 day 1, task 2" in diff
        assert "+    return native.linear(x, w, bias)" in diff
        for file in ("tiny_llm/basics.py", "tiny_llm/ops/dense.py", "tiny_llm/attention.py"):
            (folder / file).write_text((ROOT / "src" / file).read_text())
        assert "2 of 2 tasks are solved" in course("progress", "--solution", name, *where)
        tested = run_python("tools/course.py", "test", "--solution", name, *where, "-q")
        assert tested.returncode == 0, tested.stdout + tested.stderr
    finally:
        shutil.rmtree(folder, ignore_errors=True)
