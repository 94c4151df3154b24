"""Pytest again and again, each time in a fork of one process that has imported what all runs need.

A new process would spend three quarters of its time on these imports. As a program it reads a line of JSON
for each run, the arguments of `run`, and writes a line with the exit status.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


class PytestForks:
    """Runs pytest in `folder`, with the packages of `paths`."""

    def __init__(self, folder: Path, paths: list[str]):
        variables = {
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # some take a second to import
            "OPENBLAS_NUM_THREADS": "1",  # threads do not survive a fork
            "TINY_LLM_TEST_SECONDS": "300",
        }
        self._output = folder / "output"
        # -S skips the start-up of site-packages, where an editable install would import the original package,
        # and -P this folder, where modules have names of the standard library.
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-P", __file__],
            cwd=folder,
            env=os.environ | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, arguments: list[str], variables: dict[str, str]) -> tuple[int, str]:
        """Pytest's exit status, negative for a signal, and its output."""
        request, answer = self._process.stdin, self._process.stdout
        assert request is not None
        assert answer is not None
        call = {"arguments": arguments, "variables": variables, "output": str(self._output)}
        print(json.dumps(call), file=request, flush=True)
        status = answer.readline()
        if not status:
            raise RuntimeError(f"the process that runs pytest ended with {self._process.wait()}")
        return int(status), self._output.read_text()

    def close(self) -> None:
        self._process.communicate()


def run(arguments: list[str], variables: dict[str, str], output: str) -> int:
    """The exit status of pytest in a fork; on macOS in a new process, as Metal does not work after a fork."""
    if sys.platform == "darwin":
        with open(output, "w") as file:
            command = [sys.executable, "-S", "-P", "-m", "pytest", *arguments]
            return subprocess.call(command, env=os.environ | variables, stdout=file, stderr=file)
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(variables)
    status = int(pytest.main(arguments))
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    import hypothesis  # noqa: F401
    import mlx.core  # noqa: F401
    import msgspec  # noqa: F401
    import numpy  # noqa: F401
    import pytest
    import tokenizers  # noqa: F401

    for line in sys.stdin:
        print(run(**json.loads(line)), flush=True)
