"""Signs of life on standard error: a bar on a terminal, a plain line now and then elsewhere."""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TextIO

PATIENCE = 0.5  # seconds that a task is silent on a terminal, so that short work does not flicker
PLAIN_PATIENCE = 1.0
PLAIN_PAUSE = 5.0  # seconds between two plain lines about one task
TICK = 0.1
BAR = 24


@dataclass(slots=True)
class Task:
    name: str
    done: int
    total: int | None
    began: float
    printed: float | None = None  # when the last plain line about it was printed

    def line(self, now: float, *, bar: bool) -> str:
        parts = [self.name]
        if self.total:
            share = min(self.done / self.total, 1.0)
            full = int(share * BAR)
            parts += [f"[{'#' * full}{'.' * (BAR - full)}]"] if bar else []
            parts.append(f"{share:4.0%}")
        return "  ".join([*parts, f"{now - self.began:.0f} s"])


class Progress:
    """Shows the newest report for as long as its `with` block runs, from a thread of its own: work that is
    busy inside one long operation shows that it is alive, too. What is quick stays silent."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic):
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._bar = is_terminal(self._stream)
        self._task: Task | None = None
        self._width = 0  # of what stands on the terminal's line
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._ticker = threading.Thread(target=self._run, daemon=True)

    def __call__(self, task: str, done: int, total: int | None) -> None:
        """Take a report."""
        with self._lock:
            now = self._clock()
            if self._task is None or self._task.name != task:
                self._end_task(now)
                self._task = Task(task, done, total, now)
            self._task.done, self._task.total = done, total

    def print_above(self, text: str) -> None:
        """Print to standard output while the work goes on."""
        with self._lock:
            self._wipe()
            print(text, flush=True)

    def __enter__(self) -> Self:
        self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._ticker.join()
        with self._lock:
            self._wipe()
            if kind is None:
                self._end_task(self._clock())

    def _run(self) -> None:
        while not self._over.wait(TICK):
            with self._lock:
                self.show()

    def show(self) -> None:
        """Draw the task under way, if it is time to."""
        task, now = self._task, self._clock()
        if task is None:
            return
        waited = now - task.began
        if self._bar and (self._width or waited >= PATIENCE):  # a bar that is there must not lag behind
            room = shutil.get_terminal_size().columns - 1
            line = task.line(now, bar=True)[:room]
            self._write("\r" + line.ljust(min(self._width, room)))
            self._width = len(line)
            return
        paused = task.printed is None or now - task.printed >= PLAIN_PAUSE
        if not self._bar and waited >= PLAIN_PATIENCE and paused:
            self._write(task.line(now, bar=False) + "\n")
            task.printed = now

    def _end_task(self, now: float) -> None:
        """Close the plain lines about a task with its time; a bar is simply replaced."""
        if self._task is not None and self._task.printed is not None:
            self._write(f"{self._task.name}: done in {now - self._task.began:.1f} s\n")
        self._task = None

    def _wipe(self) -> None:
        if self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0

    def _write(self, text: str) -> None:
        with suppress(OSError):  # it is the work that counts
            self._stream.write(text)
            self._stream.flush()


def is_terminal(stream: TextIO) -> bool:
    """Whether a line on `stream` can be drawn over."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def dimmed(text: str, stream: TextIO) -> str:
    """`text` in a paler colour, where there are colours and nobody asked for none."""
    if not is_terminal(stream) or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[2m{text}\x1b[0m"
