"""How many arrays of a long computation are in memory at a time, on CUDA.

MLX starts all operations of a graph at once and frees what one has read when it ends. A prompt would then
hold the dense weights of all blocks. With a throttle, an operation starts only after most before it have
ended.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import mlx.core as mx

GROUP = 8 * 2**20  # bytes


class Throttle:
    """Starts results in groups: one group runs while the next one is built."""

    def __init__(self) -> None:
        self._running: Any = None
        self._held_bytes = 0

    def add(self, results: Any, held_bytes: int) -> None:
        """Add `results`, a tree of arrays, which hold that much memory until they are there.

        They depend on all results before, so a group is started by its last ones.
        """
        self._held_bytes += held_bytes
        if self._held_bytes < GROUP:
            return
        mx.async_eval(results)  # type: ignore[no-untyped-call]
        if self._running is not None:
            mx.eval(self._running)
        self._running, self._held_bytes = results, 0


_may_start: ContextVar[bool] = ContextVar("may_start", default=True)
_current: ContextVar[Throttle | None] = ContextVar("throttle", default=None)


def current_throttle() -> Throttle | None:
    """The throttle of this block of code; None: nothing is started before the caller evaluates."""
    return _current.get()


@contextmanager
def throttled() -> Iterator[None]:
    """A block in which a prompt starts its operations group by group."""
    before = _current.set(Throttle() if _may_start.get() else None)
    try:
        yield
    finally:
        _current.reset(before)


@contextmanager
def one_graph() -> Iterator[None]:
    """A block in which nothing is started, to count the operations of a prompt."""
    before = _may_start.set(False)
    try:
        yield
    finally:
        _may_start.reset(before)
