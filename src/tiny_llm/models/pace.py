"""How many arrays of a long computation are in memory at a time, on CUDA.

MLX starts all operations of a graph at once and frees what one has read when it ends. A prompt would then
hold the dense weights of all blocks. With a pace, an operation starts only after most before it have ended.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import mlx.core as mx

IN_FLIGHT = 32 * 2**20  # bytes


class Pace:
    """Started results that still hold memory."""

    def __init__(self) -> None:
        self._started: deque[tuple[Any, int]] = deque()

    def start(self, results: Any, held_bytes: int) -> None:
        """Start to compute `results`, a tree of arrays, which hold that much memory until they are there.

        Waits for the oldest ones while more than IN_FLIGHT is held; the newest are left running.
        """
        mx.async_eval(results)  # type: ignore[no-untyped-call]
        self._started.append((results, held_bytes))
        while len(self._started) > 1 and sum(held for _, held in self._started) > IN_FLIGHT:
            mx.eval(self._started.popleft()[0])


_current: ContextVar[Pace | None] = ContextVar("pace", default=None)


def current_pace() -> Pace | None:
    """The pace of this block of code; None: nothing is started before the caller evaluates."""
    return _current.get()


@contextmanager
def paced() -> Iterator[None]:
    """A block in which prompts start their operations piece by piece."""
    before = _current.set(Pace())
    try:
        yield
    finally:
        _current.reset(before)
