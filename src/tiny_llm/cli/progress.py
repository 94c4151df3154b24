"""Progress on standard error, that of prefill too: a bar on a terminal, an occasional plain line elsewhere.

Not tqdm, which draws only when updated: a long operation would show nothing, a pipe gets `\\r` or nothing.
"""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TextIO

import mlx.core as mx

from ..generation.sequence import next_logits
from ..loading.progress import Progress
from ..runtime.kernel_cache import kernel_cache, must_compile
from .exit_codes import print_stderr

PATIENCE = 0.5  # seconds before a bar appears, so that short tasks do not flicker
PLAIN_PATIENCE = 1.0  # seconds before the first plain line
PLAIN_PAUSE = 5.0  # seconds between two plain lines about one task
TICK = 0.1  # seconds between two drawings
BAR = 24  # characters
READING = "reading the prompt"
COMPILING = "compiling GPU kernels, at their first use"


@dataclass(slots=True)
class Task:
    name: str
    done: int
    total: int | None
    began: float
    printed: float | None = None  # time of its last plain line

    def line(self, now: float, *, bar: bool) -> str:
        parts = [self.name]
        if self.total:
            share = min(self.done / self.total, 1.0)
            full = int(share * BAR)
            parts += [f"[{'#' * full}{'.' * (BAR - full)}]"] if bar else []
            parts.append(f"{share:4.0%}")
        return "  ".join([*parts, f"{now - self.began:.0f} s"])


class ProgressBar:
    """Shows the current task during its `with` block. A thread draws, so the seconds also advance during one
    long operation. Short tasks show nothing."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic):
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._bar = is_terminal(self._stream)
        self._task: Task | None = None
        self._width = 0  # characters of the bar on the terminal, 0 if there is none
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._ticker = threading.Thread(target=self._run, daemon=True)

    def __call__(self, task: str, done: int, total: int | None) -> None:
        """Report that `done` of `total` is done; another name starts another task."""
        with self._lock:
            now = self._clock()
            if self._task is None or self._task.name != task:
                self._end_task(now)
                self._task = Task(task, done, total, now)
            self._task.done, self._task.total = done, total

    def print_above(self, text: str) -> None:
        """Print to standard output, above the bar."""
        with self._lock:
            self._wipe()
            print(text, flush=True)

    def __enter__(self) -> Self:
        self._ticker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
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
        """Draw the current task, if it is time to."""
        task, now = self._task, self._clock()
        if task is None:
            return
        waited = now - task.began
        if self._bar and (self._width or waited >= PATIENCE):  # a visible bar follows its task at once
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
        """Print the time of a task that had plain lines; a bar is only replaced."""
        if self._task is not None and self._task.printed is not None:
            self._write(f"{self._task.name}: done in {now - self._task.began:.1f} s\n")
        self._task = None

    def _wipe(self) -> None:
        if self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0

    def _write(self, text: str) -> None:
        with suppress(OSError):  # unwritable progress must not end the work
            self._stream.write(text)
            self._stream.flush()


def is_terminal(stream: TextIO) -> bool:
    """Whether `stream` is a terminal that can redraw its line."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def print_dimmed(text: str) -> None:
    """Print on standard error, dimmed on a terminal."""
    print_stderr(dimmed(text, sys.stderr))


def dimmed(text: str, stream: TextIO) -> str:
    """`text` dimmed on a terminal, unless NO_COLOR is set."""
    if not is_terminal(stream) or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[2m{text}\x1b[0m"


class PrefillReporter:
    """A model wrapped to report, at each call, how many of the first `total` tokens were processed before."""

    def __init__(self, model: Any, progress: Progress):
        self._model = model
        self._progress = prefill_progress(progress, kernel_cache())
        self.total = 0
        self._newest = -1  # last report; a model without a cache starts at 0 for every token

    def __call__(self, inputs: mx.array, *where: Any) -> mx.array:
        self._report(*where)
        logits: mx.array = self._model(inputs, *where)
        return logits

    def next_logits(self, inputs: mx.array, *where: Any) -> mx.array:
        self._report(*where)
        return next_logits(self._model, inputs, *where)

    def _report(self, offset: int = 0, *cache: Any) -> None:
        if self._newest < offset < self.total:
            self._newest = offset
            self._progress(offset, self.total)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def prefill_progress(progress: Progress, cache: Path | None) -> Callable[[int, int], None]:
    """A function that reports how many tokens of how many are processed.

    With an empty cache of kernels it reports that they are compiled: that takes most of the time.
    """
    if must_compile(cache):
        return lambda done, total: progress(COMPILING, 0, None)
    return lambda done, total: progress(READING, done, total)
