"""A program on a pseudo-terminal: its output, and keys that are pressed."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

from ..support.processes.child import ROOT

CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x1b[A"
PATIENCE = 240.0
# `generate` with immediate progress, as the time of a task depends on the machine.
IMPATIENT = """
import sys
from tiny_llm.cli import run_command, progress
progress.PATIENCE = progress.PLAIN_PATIENCE = progress.TICK = 0.001
sys.exit(run_command("generate", "program"))
"""
LONG_PROMPT = "Tell me a story. " * 200


def environment(**changes: str) -> dict[str, str]:
    """The environment of this process, with which a child finds the same modules."""
    path = os.pathsep.join(filter(None, sys.path))
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    return {**kept, "PYTHONPATH": path, "TERM": "xterm", **changes}


class Terminal:
    """`with Terminal("main.py") as terminal:` runs a program whose three streams are a terminal."""

    def __init__(self, *arguments: str, **changes: str):
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environment(**changes),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            preexec_fn=take_terminal,  # Ctrl-C must reach the program, and only it
        )
        os.close(theirs)
        self.shown = ""  # all output so far
        self._read = 0  # end of the last match of `wait_for`

    def press(self, keys: str) -> None:
        self.press_bytes(keys.encode())

    def press_bytes(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def wait_for(self, pattern: str) -> str:
        """The text up to the end of the next match; AssertionError if there is none in time."""
        end = time.monotonic() + PATIENCE
        while not (found := re.compile(pattern).search(self.shown, self._read)):
            more = self._more(end)
            assert more, f"{pattern!r} did not follow {self.shown[self._read :]!r}"
            self.shown += more
        text, self._read = self.shown[self._read : found.end()], found.end()
        return text

    def wait(self) -> int:
        """The exit code, after all output."""
        while more := self._more(time.monotonic() + PATIENCE):
            self.shown += more
        return self.process.wait(PATIENCE)

    def _more(self, end: float) -> str:
        ready, _, _ = select.select([self._ours], [], [], max(end - time.monotonic(), 0))
        try:
            return os.read(self._ours, 2**16).decode(errors="replace") if ready else ""
        except OSError:  # the program has closed its side
            return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._ours)


def take_terminal() -> None:
    """Become the leader of a session whose terminal is standard input."""
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
