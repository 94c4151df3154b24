"""`pdm run course`: days and tasks as the chapters number them."""

import argparse

from tools.learner import commands

from ..support.processes.child import run_python


def hint(week, day, task):
    return run_python("tools/course.py", "hint", "--week", week, "--day", day, "--task", task)


def test_without_a_command_all_are_named():
    result = run_python("tools/course.py")
    assert result.returncode == 2
    assert "required: {start,progress,hint,solution}" in result.stderr


def test_the_second_day_of_a_chapter_has_the_tasks_of_the_first():
    first, second = hint("2", "4", "2"), hint("2", "5", "2")
    assert second.returncode == 0
    assert second.stdout == first.stdout
    assert "online_softmax-inl.h: update_maximum" in first.stdout


def test_a_task_without_places_says_that_there_is_nothing_to_write():
    result = hint("2", "5", "4")
    assert (result.returncode, result.stderr) == (0, "")
    assert "week 2 day 4, task 4: nothing to write" in result.stdout
    assert "pdm run test --week 2 --day 5 -- -k task_4" in result.stdout


def test_a_task_without_tests_is_refused():
    result = hint("2", "5", "9")
    assert result.returncode == 1
    assert "There is no such task; there is one for (week.day.task) 1.1.1, 1.1.2" in result.stderr


def test_progress_names_each_task_before_its_tests_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "tiny_llm").mkdir()
    before = []

    def outcome(folder, task):
        before.append(capsys.readouterr().out)
        return commands.Outcome(1, 0)

    monkeypatch.setattr(commands, "outcome", outcome)
    commands.progress(argparse.Namespace(solution=str(tmp_path), week=2, day=5))
    tasks = [task for task in commands.all_tasks() if (task.week, task.day) == (2, 4)]
    assert [line.splitlines()[-1].rstrip() for line in before] == [task.label for task in tasks]
    assert f"{len(tasks)} of {len(tasks)} tasks are solved." in capsys.readouterr().out
