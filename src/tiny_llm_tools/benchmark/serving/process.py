"""A server in a process of its own, for the duration of a measurement."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Self

from .http import Site
from .probe import ServerError, status_of

ADDRESS = re.compile(r"https?://\S+?(?=/v1)")  # in the first line that `tiny-llm serve` prints
POLL_SECONDS = 0.05
END_SECONDS = 10.0  # from SIGTERM to SIGKILL


class ServerProcess:
    """Runs a command during a `with` block, which begins when GET `ready` is answered with 200.

    url: where it will listen; without one, its first line of output has it. Its log is in a temporary file:
    only the reason why it ended is shown. Ctrl-C on the terminal does not reach it.
    """

    def __init__(
        self,
        command: Sequence[str],
        url: str | None = None,
        ready: str = "/ready",
        environment: Mapping[str, str] | None = None,
    ):
        self._command = list(command)
        self._ready = ready
        self._environment = dict(environment or {})
        self._given_url = url
        self.url = url or ""

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        self._log: IO[str] = tempfile.TemporaryFile("w+", errors="replace")
        path = os.pathsep.join(filter(None, sys.path))
        announces = self._given_url is None
        self._process = subprocess.Popen(
            self._command,
            env={**os.environ, "PYTHONPATH": path, **self._environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if announces else self._log,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        try:
            if announces:
                self.url = self._announced()
            site = Site.at(self.url)
            while status_of(site, self._ready) != 200:
                if self._process.poll() is not None:
                    raise ServerError(self._why_it_ended())
                time.sleep(POLL_SECONDS)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ask the process to end, and kill it if it does not."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def _announced(self) -> str:
        assert self._process.stdout is not None
        found = ADDRESS.search(self._process.stdout.readline())
        if found is None:
            self._process.wait(END_SECONDS)
            raise ServerError(self._why_it_ended())
        return found[0]

    def _why_it_ended(self) -> str:
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().splitlines() if line.strip()]
        reason = f": {lines[-1]}" if lines else ""
        return f"the server ended with code {self._process.returncode}{reason}"


def own_command(options: Sequence[str]) -> list[str]:
    """`tiny-llm serve` on a free port."""
    return [sys.executable, "-m", "tiny_llm", "serve", *options, "--port", "0"]
