"""`pdm run test`: weeks, days, pytest's arguments and pytest's exit status."""

import mlx.core as mx
import pytest

from tools import course

from ..support.processes.child import run_python
from .project import timetable


def course_test(*arguments):
    return run_python("tools/course.py", "test", *arguments)


@pytest.mark.parametrize("arguments", [("--week", "1"), ("--day", "1")])
def test_a_week_or_a_day_alone_is_refused(arguments):
    result = course_test(*arguments)
    assert result.returncode == 1
    assert "--week and --day belong together" in result.stderr


def test_the_error_for_a_missing_day_names_the_existing_ones():
    result = course_test("--week", "9", "--day", "9")
    assert result.returncode == 1
    assert all(f"{c['week']}.{day}" in result.stderr for c in timetable() for day in c["days"])


@pytest.mark.parametrize("dashes", [(), ("--",), ("--", "--")])
def test_other_arguments_go_to_pytest_with_any_number_of_dashes(dashes):
    result = course_test("--week", "1", "--day", "4", *dashes, "--collect-only", "-k", "task_1")
    assert result.returncode == 0, result.stderr
    assert "test_task_1" in result.stdout
    assert "test_task_2" not in result.stdout


def test_the_second_day_of_a_chapter_runs_the_first_ones_file():
    result = course_test("--week", "2", "--day", "5", "--", "--collect-only", "-q")
    assert "running tests/test_week_2_day_4.py" in result.stdout
    assert result.returncode == 0, result.stdout


def test_a_chapter_runs_verbosely_and_the_exit_status_is_that_of_pytest():
    result = course_test("--week", "1", "--day", "1", "--", "-k", "no_test_has_this_name")
    assert result.returncode == 5
    assert "collected" in result.stdout


def test_modules_are_compiled_once_for_all_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    test = tmp_path / "test_bytecode.py"
    test.write_text("import sys\n\ndef test_bytecode():\n    assert not sys.dont_write_bytecode\n")
    result = course_test("--", str(test))
    assert result.returncode == 0, result.stdout


def test_a_run_prints_the_chapter_first_and_the_reasons_of_skipped_tests_last():
    (chapter,) = [chapter for chapter in timetable() if (chapter["week"], chapter["days"][0]) == (1, 1)]
    result = course_test("--week", "1", "--day", "1", "--", "-k", "softmax_of_a_row_of_minus_infinity")
    lines = result.stdout.splitlines()
    assert result.returncode == 0, result.stdout
    assert lines[0] == f"Week 1 day 1: {chapter['title']}"
    assert lines[1].split(maxsplit=1)[1] == ", ".join(chapter["files"])
    assert lines[2].split()[-1] == "tests/test_week_1_day_1.py"
    reason = "1 skipped: MLX has no GPU on this machine"
    assert (reason in lines[-3:]) == (not mx.is_available(mx.gpu))


def test_a_run_names_the_code_that_it_tests(tmp_path, monkeypatch, capsys):
    chapter = course.find_chapter(1, 6)
    course.announce(chapter, 6, "my_llm/")
    assert "  code   my_llm/tiny_llm/generate.py, my_llm/tiny_llm/generation\n" in capsys.readouterr().out
    monkeypatch.setattr(course.commands, "FOLDER", str(tmp_path / "mine"))
    course.announce(chapter, 6, None)
    assert "--solution" not in capsys.readouterr().out
    (tmp_path / "mine").mkdir()
    course.announce(chapter, 6, None)
    said = capsys.readouterr().out.splitlines()
    assert said[1] == "  code   src/tiny_llm/generate.py, src/tiny_llm/generation"
    assert said[-1] == f"This tests our code; --solution {tmp_path}/mine tests yours."


@pytest.mark.slow
def test_without_a_week_the_whole_suite_runs():
    result = course_test("--", "--collect-only", "-q", "-k", "test_the_lock_file_names_no_host")
    assert "1/" in result.stdout.splitlines()[-1]
