"""An event loop that never waits: its clock jumps to the next timer, so hours pass at once and exactly."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class _Jump(selectors.DefaultSelector):
    """Instead of waiting for a timer, adds its seconds to `now`."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "every task waits for something that will never happen"
            self.now += max(timeout, 0.0)
        return ready


def run_at_once(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of this work, which begins at second 0.

    `asyncio.sleep` and time limits take no real time; the clocks of the loop and of `time` show theirs.
    """
    selector = _Jump()
    loop = asyncio.SelectorEventLoop(selector)

    def now() -> float:
        return selector.now

    with (
        patch.object(loop, "time", now),
        patch("time.monotonic", now),
        patch("time.perf_counter", now),
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
    """The second of the loop that runs."""
    return asyncio.get_running_loop().time()
