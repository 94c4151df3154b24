"""Progress with a clock that the tests set: what is drawn, when, and what remains on the screen."""

from __future__ import annotations

import io
from itertools import groupby

import pytest

from tiny_llm.cli.loaders import LOADERS
from tiny_llm.cli.progress import READING, ProgressBar, dimmed

from .conftest import Run

FULL = next(iter(LOADERS))


class Screen(io.StringIO):
    """A stream with isatty() True, and the visible text of its last line."""

    def isatty(self) -> bool:
        return True

    @property
    def line(self) -> str:
        shown = ""
        for part in self.getvalue().split("\r"):
            shown = part + shown[len(part) :]
        return shown.rstrip()


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture(autouse=True)
def a_real_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_a_bar_appears_after_a_delay_and_moves(clock: list[float]) -> None:
    screen = Screen()
    progress = ProgressBar(screen, lambda: clock[0])
    progress("loading", 0, 200)
    clock[0] = 0.4
    progress.show()
    assert screen.getvalue() == ""
    clock[0] = 2.0
    progress("loading", 50, 200)
    progress.show()
    assert screen.line == "loading  [######..................]   25%  2 s"
    progress("loading", 300, 200)
    progress.show()
    assert screen.line == "loading  [########################]  100%  2 s"


def test_a_shorter_line_covers_a_longer_one_and_all_is_wiped_in_the_end(clock: list[float]) -> None:
    screen = Screen()
    with ProgressBar(screen, lambda: clock[0]) as progress:
        progress("a task of a long name", 1, 2)
        clock[0] = 1.0
        progress.show()
        progress("short", 0, None)
        progress.show()
        assert screen.line == "short  0 s"
    assert screen.line == ""
    assert "\n" not in screen.getvalue()


def test_plain_lines_are_few_and_end_with_the_time(clock: list[float]) -> None:
    stream = io.StringIO()
    progress = ProgressBar(stream, lambda: clock[0])
    progress("quick", 0, 1)
    clock[0] = 0.9
    progress.show()
    progress("slow", 1, 4)
    for clock[0] in (1.8, 2.0, 4.0, 6.9, 7.1):
        progress.show()
    progress("next", 0, None)
    clock[0] = 7.4
    progress.show()
    assert stream.getvalue().splitlines() == [
        "slow   25%  1 s",
        "slow   25%  6 s",
        "slow: done in 6.2 s",
    ]


def test_short_tasks_show_no_bar_until_a_long_one_does(clock: list[float]) -> None:
    screen = Screen()
    progress = ProgressBar(screen, lambda: clock[0])
    for task in ("one", "two", "three"):
        progress(task, 0, 1)
        clock[0] += 0.3
        progress.show()
    assert screen.getvalue() == ""
    clock[0] += 0.3
    progress.show()
    assert screen.line.startswith("three")
    progress("four", 0, 1)
    progress.show()
    assert screen.line.startswith("four")


def test_the_thread_shows_work_that_does_not_report() -> None:
    ticks = iter(range(10**9))
    stream = io.StringIO()
    with ProgressBar(stream, lambda: float(next(ticks))) as progress:
        progress("one long operation", 0, None)
        while not stream.getvalue():
            pass
    assert stream.getvalue().startswith("one long operation  ")


def test_text_above_a_bar_stands_alone(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    progress = ProgressBar(screen, lambda: clock[0])
    progress("answering", 0, 16)
    clock[0] = 1.0
    progress.show()
    progress.print_above("An answer.")
    assert screen.line == ""
    assert capsys.readouterr().out == "An answer.\n"


def test_a_narrow_terminal_keeps_one_line(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    screen = Screen()
    progress = ProgressBar(screen, lambda: clock[0])
    progress("a task whose name is too long for it", 1, 2)
    clock[0] = 1.0
    progress.show()
    assert screen.line == "a task whose name i"


@pytest.mark.parametrize(
    ("stream", "variables", "expected"),
    [
        (Screen(), {}, "\x1b[2mtext\x1b[0m"),
        (Screen(), {"NO_COLOR": "1"}, "text"),
        (Screen(), {"TERM": "dumb"}, "text"),
        (io.StringIO(), {}, "text"),
    ],
)
def test_colour_is_for_terminals_without_no_color(
    stream: io.StringIO, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert dimmed("text", stream) == expected


FEW = "--num-seqs 1 --min-input-len 4 --max-input-len 4 --min-output-len 2 --max-output-len 2".split()


@pytest.mark.parametrize(
    ("command", "flags", "expected"),
    [
        ("generate", ["--json", "--max-tokens", "2"], ["preparing the prompt", READING, "answering"]),
        ("generate", ["--max-tokens", "3", "--loader", FULL], ["preparing the prompt", READING]),
        ("batch", ["--max-seq-len", "40"], ["preparing the prompts", "answering"]),
        ("bench", ["--model", "tiny", "--compare", "mlx", *FEW],
         ["importing mlx-lm", "building the mlx-lm model", "comparing the logits", "measuring"]),
        ("demo", ["--tokens", "64"], ["flash_attention", "mx.fast of MLX", "plain attention"]),
    ],
)  # fmt: skip
def test_every_task_has_its_name(
    run: Run, reports: list[tuple[str, int]], command: str, flags: list[str], expected: list[str]
) -> None:
    assert run(command, *flags).code == 0
    tasks = [task for task, _ in groupby(task for task, _ in reports)]
    assert tasks[-len(expected) :] == expected
    assert len(tasks) == len(set(tasks))


def test_prefill_is_reported_once(run: Run, reports: list[tuple[str, int]]) -> None:
    assert run("generate", "--max-tokens", "3", "--loader", FULL).code == 0
    assert [done for task, done in reports if task == READING] == [0]
