"""Tests of a learner's code that a crash of a kernel ends: which one ran, and what to look at.

As a plugin of pytest it writes the name of each test to the file of --running before the test runs.
"""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

PLUGIN = ["-p", "tools.learner.crash", "-p", "no:faulthandler"]  # its stack does not enter kernels
REPORT = """

{signal} ended the tests in {test}.
Only native code does that: a kernel of {folder} read or wrote outside of its arrays, or divided by 0.
Look at the bounds of its loops first: the last tile, which is not full, and rows that see no key.
std::fprintf(stderr, ...) shows what a kernel computes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--running", type=Path, required=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    item.config.getoption("--running").write_text(item.nodeid)


def run_reporting(folder: str, command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run pytest and say which test crashed; the exit status as a shell has it."""
    with tempfile.NamedTemporaryFile() as running:
        with subprocess.Popen([*command, *PLUGIN, "--running", running.name], env=environment) as process:
            while process.returncode is None:
                try:
                    process.wait()
                except KeyboardInterrupt:  # pytest got it, too, and ends with a summary
                    continue
        test = Path(running.name).read_text()
    if process.returncode >= 0:
        return process.returncode
    name = signal.Signals(-process.returncode).name
    print(REPORT.format(signal=name, test=test, folder=folder), file=sys.stderr)
    return 128 - process.returncode
