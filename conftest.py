"""Every test ends: one that hangs ends its process, with the stack of every thread.

A watchdog of the interpreter does it, which needs no lock and runs no Python: an evaluation of MLX can hang
where no signal and no Python thread gets through. With several processes the others go on, and the test that
hung is named as the one that crashed.
"""

import faulthandler
import os
from collections.abc import Iterator

import pytest

# Seconds, many times what the longest test takes on two idle cores; the variable is for slower machines.
LIMIT, LIMIT_OF_SLOW_TESTS = 600, 1800
stderr = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Remember standard error as it is: while a test runs, pytest has another file in its place."""
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        config.stash[stderr] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[stderr])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    limit = LIMIT_OF_SLOW_TESTS if item.get_closest_marker("slow") else LIMIT
    limit = float(os.environ.get("TINY_LLM_TEST_SECONDS", limit))
    faulthandler.dump_traceback_later(limit, exit=True, file=item.config.stash[stderr])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
