"""The process that renders the templates of models: one for all of them, started when it is first needed."""

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...checks.types import kind
from ...errors import ArgumentTypeError
from ..errors import LoadError

PROGRAM = Path(__file__).with_name("template_process.py")
LONGEST_ANSWER = 16 * 2**20  # bytes that are read from the process; a character takes up to 12


class TemplateWorker:
    """Sends requests to the process, one at a time, and replaces a process that has ended or was stopped.

    The process ends with this one: it reads requests until its standard input is closed.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        atexit.register(self.stop)
        # A child would share the pipes of its parent: requests of both would mix.
        os.register_at_fork(after_in_child=self._forget)

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, str]:
        """The answer to a request; LoadError if there is none in time. Callable from any thread."""
        line = json.dumps({**request, "seconds": seconds}, default=_plain).encode() + b"\n"
        with self._lock:
            # One that was killed while it was idle is replaced. If a new one ends, the template is to blame.
            if self._process is not None:
                written, in_time = self._exchange(self._process, line, seconds)
                if written or not in_time:
                    return self._read(written, in_time, seconds)
            self._process = _start()
            return self._read(*self._exchange(self._process, line, seconds), seconds)

    def stop(self) -> None:
        """End the process; the next request starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()  # closes the pipes and waits

    @property
    def pid(self) -> int | None:
        """The process that is running, if there is one."""
        return None if self._process is None else self._process.pid

    def _exchange(self, process: subprocess.Popen[bytes], line: bytes, seconds: float) -> tuple[bytes, bool]:
        """What the process answers, and whether that was in time. Without a whole answer it is stopped."""
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(seconds, process.kill)
        timer.daemon = True
        timer.start()
        written = b""
        try:
            process.stdin.write(line)
            process.stdin.flush()
            written = process.stdout.readline(LONGEST_ANSWER)
        except BrokenPipeError:
            pass
        finally:  # Ctrl-C leaves an answer behind that nobody has asked for
            in_time = timer.is_alive()
            timer.cancel()
            if not (in_time and written.endswith(b"\n")):
                self.stop()
        return written, in_time

    def _read(self, written: bytes, in_time: bool, seconds: float) -> dict[str, str]:
        try:
            answer: dict[str, str] = json.loads(written)
        except ValueError as error:
            reason = "ended without an answer" if in_time else f"took more than {seconds:g} s"
            raise LoadError(f"chat_template: the template {reason} and was stopped") from error
        return answer

    def _forget(self) -> None:
        self._process = None
        self._lock = threading.Lock()


def _plain(value: object) -> dict[Any, Any]:
    """What JSON can write instead of an object that it does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    expected = "texts, numbers, lists and dictionaries, which the template's process can read"
    raise ArgumentTypeError("apply_chat_template", "messages", f"{kind(value)} inside", expected)


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
