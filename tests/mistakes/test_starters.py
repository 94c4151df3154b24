"""Each task of the course: its tests fail in the starter files, and pass once it is solved, in order."""

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
def folder(tmp_path_factory):
    """The learner's folder."""
    made = tmp_path_factory.mktemp("learner") / "my_llm"
    create(made)
    return made


def leave_empty(folder, tasks):
    """Solve all tasks but these."""
    messages = messages_by_file(tasks)
    for file in messages_by_file(TASKS):
        right = (ROOT / "src" / file).read_text()
        (folder / file).write_text(emptied(right, messages.get(file, {})))


@pytest.mark.parametrize("number", range(len(TASKS)), ids=[label(task) for task in TASKS])
def test_a_task_can_be_solved_after_those_before_it_and_not_without(folder, number):
    task, later = TASKS[number], TASKS[number + 1 :]
    selected = [task.tests, "-q", "-x", "--tb=short", "-k", f"task_{task.number}_"]
    leave_empty(folder, [task, *later])
    starter = run_pytest(folder, selected)
    assert starter.returncode == 1, starter.stdout + starter.stderr
    assert f"NotImplementedError: {task.label}: {task.title}" in starter.stdout
    leave_empty(folder, later)
    solution = run_pytest(folder, selected)
    assert solution.returncode == 0, solution.stdout + solution.stderr


def test_the_learners_loop_by_its_commands():
    name = "build/learner-of-a-test"
    place = ROOT / name

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
            (place / file).write_text((ROOT / "src" / file).read_text())
        assert "2 of 2 tasks are solved" in course("progress", "--solution", name, *where)
        tested = run_python("tools/course.py", "test", "--solution", name, *where, "-q")
        assert tested.returncode == 0, tested.stdout + tested.stderr
    finally:
        shutil.rmtree(place, ignore_errors=True)
