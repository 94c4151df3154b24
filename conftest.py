"""Every test ends: one that hangs ends its process, with the stack of every thread.

A watchdog of the interpreter does it, which needs no lock and runs no Python: an evaluation of MLX can hang
where no signal and no Python thread gets through. With several processes the others go on, and the test that
hung is named as the one that crashed.
"""

import contextlib
import faulthandler
import os
from collections.abc import Iterator

import pytest

# Seconds, many times what the longest test takes on two idle cores; the variable is for slower machines.
LIMIT, LIMIT_OF_SLOW_TESTS = 600, 1800
stderr = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Remember standard error as it is: while a test runs, pytest has another file in its place."""
    capture = config.pluginmanager.getplugin("capturemanager")  # none with -p no:capture
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        config.stash[stderr] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    if (file := config.stash.get(stderr, None)) is not None:
        os.close(file)


def limited(item: pytest.Item) -> Iterator[None]:
    """Limit one phase of a test; pytest calls the limit off when a phase fails, so each has its own."""
    limit = LIMIT_OF_SLOW_TESTS if item.get_closest_marker("slow") else LIMIT
    limit = float(os.environ.get("TINY_LLM_TEST_SECONDS", limit))
    faulthandler.dump_traceback_later(limit, exit=True, file=item.config.stash[stderr])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    return (yield from limited(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    return (yield from limited(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    return (yield from limited(item))
