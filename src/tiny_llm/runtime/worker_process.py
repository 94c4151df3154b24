"""A process for untrusted work with a time limit: it answers one request at a time, and is killed if late."""

import atexit
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("worker_program.py")
START_SECONDS = 60.0  # limit of Python and the imports of a handler, on a busy machine
# All that the process inherits: where packages and libraries are, how text is read, what time it is. No keys.
ENVIRONMENT = (
    "PATH", "HOME", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
    "PYTHONHOME", "PYTHONPATH", "PYTHONUSERBASE", "PYTHONUTF8",
)  # fmt: skip
MAX_RESPONSE_BYTES = 16 * 2**20  # bytes that are read from the process; a character takes up to 12


class WorkerStopped(Exception):
    """The process gave no answer and was stopped; the text says why."""


class WorkerTooSlow(WorkerStopped):
    """It gave none in time."""


class WorkerProcess:
    """A process that runs `handle` of a file: one request at a time, replaced when it has ended or was
    stopped.

    It ends together with this process, because it reads requests until its standard input is closed.
    """

    def __init__(self, handler: Path) -> None:
        self._command = [sys.executable, "-P", str(PROGRAM), str(handler)]
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        atexit.register(self.stop)
        # A child would share the pipes of its parent: requests of both would mix.
        os.register_at_fork(after_in_child=self._after_fork)

    def request(self, record: str, seconds: float) -> dict[str, Any]:
        """The answer to a JSON object; WorkerStopped if there is none in time. Callable from any thread.

        The time does not include the start of a process.
        """
        line = f'{{"seconds": {seconds}, "request": {record}}}\n'.encode()
        with self._lock:
            # A process that was killed while idle is replaced. If a new one ends, the request is the cause.
            if self._process is not None:
                written, in_time = self._exchange(self._process, line, seconds)
                if written or not in_time:
                    return self._read(written, in_time, seconds)
            process = self._start()
            return self._read(*self._exchange(process, line, seconds), seconds)

    def stop(self) -> None:
        """End the process; the next request starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()  # closes the pipes and waits

    @property
    def pid(self) -> int | None:
        """The number of the running process; None if there is none."""
        return None if self._process is None else self._process.pid

    def _exchange(self, process: subprocess.Popen[bytes], line: bytes, seconds: float) -> tuple[bytes, bool]:
        """The line written by the process, and whether it came in time. Without a line, it is stopped."""
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(seconds, process.kill)
        timer.daemon = True
        timer.start()
        written = b""
        try:
            process.stdin.write(line)
            process.stdin.flush()
            written = process.stdout.readline(MAX_RESPONSE_BYTES)
        except BrokenPipeError:
            pass
        finally:  # also after Ctrl-C: the next request must not read this one's answer
            in_time = timer.is_alive()
            timer.cancel()
            if not (in_time and written.endswith(b"\n")):
                self.stop()
        return written, in_time

    def _read(self, written: bytes, in_time: bool, seconds: float) -> dict[str, Any]:
        try:
            result: dict[str, Any] = json.loads(written)
        except ValueError as error:
            if in_time:
                raise WorkerStopped("ended without an answer") from error
            raise WorkerTooSlow(f"took more than {seconds:g} s") from error
        return result

    def _start(self) -> subprocess.Popen[bytes]:
        """A new process, when it has written that it is ready."""
        process = self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        )
        self._read(*self._exchange(process, b"", START_SECONDS), START_SECONDS)
        return process

    def _after_fork(self) -> None:
        self._process = None
        self._lock = threading.Lock()
