"""Run the Metal kernels on Linux, each of their accesses checked: `pdm run test-metal`, `--full` for all.

The long form divides the tests among as many processes as this machine has processors.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1] / "tests" / "metal"
PASSED = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}  # a share of few tests may be empty


class Share:
    """A pytest plugin that runs the `index`-th of `count` equal parts of the tests, drawn by lot."""

    def __init__(self, index: int, count: int):
        self.index, self.count = index, count

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        order = list(items)
        random.Random(0).shuffle(order)  # neighbours differ in one parameter, which may decide what they cost
        own = set(order[self.index :: self.count])
        config.hook.pytest_deselected(items=[item for item in items if item not in own])
        items[:] = [item for item in items if item in own]


def in_shares(count: int, arguments: list[str]) -> int:
    """Run all shares at once: the first one prints as it goes, the others when they are done."""
    commands = [
        [sys.executable, __file__, "--full", "--share", f"{index}/{count}", *arguments]
        for index in range(count)
    ]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, str(index)) for index in range(count)]
        streams = [None, *(path.open("w") for path in outputs[1:])]
        running = [
            subprocess.Popen(command, stdout=stream, stderr=stream)
            for command, stream in zip(commands, streams, strict=True)
        ]
        codes = [process.wait() for process in running]
        for path, stream in zip(outputs[1:], streams[1:], strict=True):
            stream.close()
            print(path.read_text())
    if set(codes) == {pytest.ExitCode.NO_TESTS_COLLECTED}:
        return pytest.ExitCode.NO_TESTS_COLLECTED
    return next((code for code in codes if code not in PASSED), 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--full", action="store_true", help="also every order of the lanes and every compiler: some minutes"
    )
    parser.add_argument("--share", help=argparse.SUPPRESS)
    arguments, for_pytest = parser.parse_known_args()
    if not arguments.full:
        return pytest.main([str(TESTS), *for_pytest])
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if arguments.share is None and processors > 1:
        return in_shares(processors, for_pytest)
    index, count = map(int, (arguments.share or "0/1").split("/"))
    return pytest.main([str(TESTS), "-m", "slow or not slow", *for_pytest], plugins=[Share(index, count)])


if __name__ == "__main__":
    sys.exit(main())
