"""Each task of the course: its tests fail in the starter files, and pass once it is solved, in order.

And the last commands of each day run the code that is written by then.
"""

import re
import shlex
import shutil
import signal

import pytest

from tools.learner import native
from tools.learner.tasks import Task, all_chapters, all_tasks, messages_by_file
from tools.learner.workspace import ROOT, create, emptied, run_pytest

from ..metal.harness.toolchain import working_compiler
from ..support.processes.child import run_python
from ..support.processes.tools import cpp_compiler

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


@pytest.fixture
def only_needed_plugins(monkeypatch):
    """Some plugins of pytest take a second to import, in each process."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def leave_empty(folder, tasks):
    """Solve all tasks but these."""
    messages = messages_by_file(tasks)
    for file in messages_by_file(TASKS):
        right = (ROOT / "src" / file).read_text()
        (folder / file).write_text(emptied(file, right, messages.get(file, {})))


def need_compiler(task):
    if any("metal" in place.file for place in task.places):
        working_compiler()


@pytest.mark.usefixtures("only_needed_plugins")
@pytest.mark.parametrize("number", range(len(TASKS)), ids=[label(task) for task in TASKS])
def test_a_task_can_be_solved_after_those_before_it_and_not_without(folder, number):
    task, later = TASKS[number], TASKS[number + 1 :]
    need_compiler(task)
    selected = [task.tests, "-q", "-x", "--tb=short", "-k", f"task_{task.number}_"]
    leave_empty(folder, [task, *later])
    starter = run_pytest(folder, selected)
    assert starter.returncode == 1, starter.stdout + starter.stderr
    raised = "NotImplementedError: " if task.places[0].is_python else ""
    assert f"{raised}{task.message}" in starter.stdout
    leave_empty(folder, later)
    if not any(other.tests == task.tests for other in later):  # the day ends: also tasks without a place
        others = [f"task_{other.number}_" for other in TASKS[:number] if other.tests == task.tests]
        selected[-1] = f"not ({' or '.join(others)})" if others else ""
    solution = run_pytest(folder, selected)
    assert solution.returncode == 0, solution.stdout + solution.stderr


# The programs that run a learner's code, and arguments with which they soon end.
PROGRAMS = {
    "pdm run main": ("main.py", "--max-tokens 3"),
    "pdm run batch-main": ("batch-main.py", ""),
    "pdm bench": (
        "bench.py",
        "--num-seqs 1 --warmup 0 --min-input-len 8 --max-input-len 8 --min-output-len 2 --max-output-len 2",
    ),
}
NO_FLASH_ATTENTION = (
    "week 2 day 4, task 1 (the wrapper of FlashAttention) is not written in my_llm yet; this runs with "
    "--no-enable-flash-attn\n"
)
INSTEAD = {
    "week1/day7": "week 2 day 1, task 1 (a cache that grows) is not written in my_llm yet; this runs with "
    "--loader=week1\n",
    "week2/day1": NO_FLASH_ATTENTION,
    "week2/day3": NO_FLASH_ATTENTION,
}


def finales():
    """The commands of each page for programs that run a learner's code."""
    for chapter in all_chapters():
        for day in chapter["days"]:
            page = f"week{chapter['week']}/day{day}"
            text = (ROOT / "book" / f"{page}.md").read_text()
            commands = re.findall(rf"^({'|'.join(PROGRAMS)})(?: --solution my_llm)?( .*)$", text, re.M)
            for program, arguments in dict.fromkeys(commands):
                yield pytest.param(chapter, page, program, arguments, id=f"{page}:{program}{arguments}")


@pytest.mark.parametrize(("chapter", "page", "program", "arguments"), list(finales()))
def test_the_last_commands_of_a_day_run_what_is_written_so_far(folder, chapter, page, program, arguments):
    leave_empty(
        folder, [task for task in TASKS if (task.week, task.day) > (chapter["week"], chapter["days"][0])]
    )
    file, soon = PROGRAMS[program]
    result = run_python(file, "--solution", str(folder), *shlex.split(arguments), *soon.split())
    assert result.returncode == 0, result.stderr
    assert "my_llm, " in result.stdout + result.stderr
    first = result.stderr.partition("\n")[0] + "\n"
    assert (first if "is not written" in first else "") == INSTEAD.get(page, "")


def course(*words):
    result = run_python("tools/course.py", *words)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture
def place():
    """A folder of the tree for starter files, removed afterwards."""
    folder = ROOT / "build" / "learner-of-a-test"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_the_learners_loop_by_its_commands(place):
    name = str(place.relative_to(ROOT))
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
    basics = place / "tiny_llm/basics.py"
    right = basics.read_text()
    basics.write_text(right + "def broken(:\n")
    line = right.count("\n") + 1
    stopped = f"no test runs: {place.name}/tiny_llm/basics.py:{line}: SyntaxError: invalid syntax"
    assert stopped in course("progress", "--solution", name, *where)
    basics.write_text(right)
    tested = run_python("tools/course.py", "test", "--solution", name, *where, "-q")
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_the_learners_loop_of_a_kernel(tmp_path):
    """From the starter files to a kernel with an error, then to one in other words than ours."""
    cpp_compiler()  # skips the test without one
    folder = tmp_path / "my_llm"
    where = ("--week", "2", "--day", "4")
    task = next(task for task in TASKS if (task.week, task.day, task.number) == (2, 4, 2))
    create(folder, [task])
    assert "online_softmax-inl.h: update_maximum" in course("hint", *where, "--task", "2")
    diff = course("solution", "--solution", str(folder), *where, "--task", "2")
    assert f'-#error "{task.message}"' in diff
    assert "+    F alpha = exp2(exponent_between(old, base));" in diff

    def test():
        selected = ("-q", "--", "-k", "task_2 and one_idea")
        return run_python("tools/course.py", "test", "--solution", str(folder), *where, *selected)

    for place in task.places:
        path = folder / place.file
        right = native.filled(
            path.read_text(), (ROOT / "src" / place.file).read_text(), {place.name: task.message}
        )
        path.write_text(right)
    path.write_text(right.replace("F alpha = exp2(", "float alpha = exp2("))
    stopped = test()
    assert stopped.returncode == 1
    assert f"{path}:" in stopped.stderr
    answer = run_python("main.py", "--solution", str(folder))
    assert (answer.returncode, answer.stderr) == (1, stopped.stderr)
    path.write_text(right.replace("F alpha = exp2(", "const F alpha = exp2("))
    solved = test()
    assert solved.returncode == 0, solved.stdout + solved.stderr
    assert "Built the extension of my_llm" in solved.stderr
    again = test()
    assert again.returncode == 0
    assert "Built" not in again.stderr
    path.write_text(
        right.replace("F alpha = exp2(", "*static_cast<volatile int*>(nullptr) = 0; F alpha = exp2(")
    )
    crashed = test()
    assert crashed.returncode == 128 + signal.SIGSEGV
    assert "SIGSEGV ended the tests in tests/test_week_2_day_4.py::test_task_2_" in crashed.stderr
    assert "a kernel of my_llm read or wrote outside of its arrays" in crashed.stderr
    assert "Fatal Python error" not in crashed.stderr
