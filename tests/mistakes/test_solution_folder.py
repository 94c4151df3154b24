"""`--solution FOLDER`: main, chat, batch-main and bench run the code of a learner, if it is written."""

from __future__ import annotations

import pytest

from tools.learner.fallback import with_fallbacks
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
    assert stopped.stderr == "pdm run main: not implemented: week 1 day 6, task 1: the loop that generates\n"
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


@pytest.fixture(scope="module")
def starters(tmp_path_factory):
    """Weeks 2 to 4 are empty."""
    made = tmp_path_factory.mktemp("learner") / "my_llm"
    create(made, [task for task in all_tasks() if task.week > 1])
    return made


@pytest.fixture(scope="module")
def two_weeks(tmp_path_factory):
    """Weeks 3 and 4 are empty."""
    made = tmp_path_factory.mktemp("learner") / "my_llm"
    create(made, [task for task in all_tasks() if task.week > 2])
    return made


WEEK1, WEEK2, GROUPED = "--loader=week1", "--loader=week2", "--no-enable-flash-attn"


@pytest.mark.parametrize(
    ("program", "arguments", "added"),
    [
        ("main.py", [], [WEEK1]),
        ("chat", ["--model", "tiny"], [WEEK1]),
        ("bench.py", [], [WEEK1]),
        ("main.py", ["--loader", "week2"], [GROUPED]),
        ("main.py", ["--loader=week2"], [GROUPED]),
        ("main.py", ["--loader", "week2", GROUPED], []),
        ("main.py", ["--loader", "week1"], []),
        ("main.py", ["--loader", "week3"], []),
        ("batch-main.py", [], [WEEK2, GROUPED]),
        ("batch-main.py", [GROUPED], [WEEK2]),
    ],
)
def test_what_is_not_written_is_avoided_with_a_line(starters, capsys, program, arguments, added):
    assert with_fallbacks(program, arguments, starters) == [*arguments, *added]
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[-1] for line in lines] == added


@pytest.mark.slow
def test_without_an_engine_the_loops_of_the_course_answer(two_weeks, tmp_path):
    assert with_fallbacks("main.py", [], two_weeks) == [WEEK2]
    assert with_fallbacks("bench.py", [], two_weeks) == []
    questions = tmp_path / "questions.txt"
    questions.write_text("Hello!\nWhat is 7 + 5?\n")
    result = run_python("batch-main.py", "--solution", str(two_weeks), "--input", str(questions))
    assert result.returncode == 0, result.stderr
    assert "7 + 5 = 12." in result.stdout
    assert result.stderr.startswith("week 3 day 1, task 1 (the pool of pages) is not written in my_llm yet; ")


@pytest.mark.parametrize("flag", ["--enable-flash-attn", "--compare"])
def test_a_flag_that_needs_what_is_not_written_is_refused_in_one_line(starters, flag):
    result = run_python("bench.py", "--solution", str(starters), "--loader", "week2", flag)
    missing = "week 2 day 4, task 1 (the wrapper of FlashAttention) is not written in my_llm yet"
    assert (result.returncode, result.stderr) == (2, f"{flag}: {missing}\n")


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--regex", "a"], ["--json-schema=x"], ["--batch-invariant"]])
def test_what_only_the_engine_has_is_refused_without_one(two_weeks, capsys, flags):
    with pytest.raises(SystemExit) as end:
        with_fallbacks("main.py", flags, two_weeks)
    assert end.value.code == 2
    sentence = "week 3 day 1, task 1 (the pool of pages) is not written in my_llm yet"
    assert capsys.readouterr().err == f"{flags[0].partition('=')[0]}: {sentence}\n"


def test_a_file_that_python_cannot_read_is_left_to_python(starters):
    path = starters / "tiny_llm" / "attention.py"
    right = path.read_text()
    path.write_text("def flash_attention(:\n")
    try:
        assert with_fallbacks("main.py", ["--loader", "week2"], starters) == ["--loader", "week2"]
    finally:
        path.write_text(right)
