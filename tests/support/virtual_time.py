"""An event loop that never waits: its clock jumps to the next timer, so hours pass at once and exactly."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


START = 1000.0  # real clocks do not begin at 0 either


class _Jump(selectors.DefaultSelector):
    """Instead of waiting for a timer, adds its seconds to `now`."""

    now = START

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "every task waits for something that will never happen"
            self.now += max(timeout, 0.0)
        return ready


def run_at_once(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of this work.

    `asyncio.sleep` and time limits take no real time; the clocks of the loop and of `time` show theirs.
    """
    selector = _Jump()
    loop = asyncio.SelectorEventLoop(selector)

    def clock() -> float:
        return selector.now

    with (
        patch.object(loop, "time", clock),
        patch("time.monotonic", clock),
        patch("time.perf_counter", clock),
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        return runner.run(work)


def at_once(
    function: Callable[Arguments, Coroutine[Any, Any, Result]],
) -> Callable[Arguments, Result]:
    """An async function, such as a test, as a plain one of the same arguments: see `run_at_once`."""

    @functools.wraps(function)
    def run(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        return run_at_once(function(*arguments, **options))

    return run


def now() -> float:
    """The seconds since `run_at_once` began."""
    return asyncio.get_running_loop().time() - START
