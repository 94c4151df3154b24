"""A test that hangs ends its process after a time limit, and prints the stack of every thread.

faulthandler's watchdog needs no lock and runs no Python: a hanging evaluation of MLX can block signals and
all Python threads. With several test processes the others go on; the test that hung is reported as a crash.
"""

import contextlib
import faulthandler
import os
from collections.abc import Iterator

import pytest

# Seconds, many times what the longest test takes on two idle cores. TINY_LLM_TEST_SECONDS overrides them.
LIMIT, LIMIT_OF_SLOW_TESTS = 600, 1800
stderr = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep a copy of standard error, which pytest replaces while a test runs."""
    capture = config.pluginmanager.getplugin("capturemanager")  # none with -p no:capture
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        config.stash[stderr] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    if (file := config.stash.get(stderr, None)) is not None:
        os.close(file)


def start_clock(item: pytest.Item) -> None:
    limit = LIMIT_OF_SLOW_TESTS if item.get_closest_marker("slow") else LIMIT
    limit = float(os.environ.get("TINY_LLM_TEST_SECONDS", limit))
    faulthandler.dump_traceback_later(limit, exit=True, file=item.config.stash[stderr])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Limit a test with its fixtures: once, because each watchdog is a new thread."""
    start_clock(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Start the clock again: pytest cancels it when a phase fails, and the next one may hang."""
    if isinstance(node, pytest.Item):
        start_clock(node)
