"""A stop watch for lazy arrays: it evaluates what was computed before it reads the clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx

from .watching import Watching


class KernelTimer(Watching):
    """`start()`, then `stop(outputs)`, which evaluates the outputs and returns milliseconds."""

    def __init__(self, name: str = ""):
        super().__init__()
        self.name = name
        self.milliseconds: float | None = None
        self._begin: float | None = None

    def start(self) -> None:
        """Wait for earlier work, then start the clock."""
        mx.synchronize()
        self.milliseconds = None
        self._begin = time.perf_counter()

    def stop(self, *outputs: object) -> float:
        """Evaluate `outputs` and what `watch` was given; milliseconds since `start`."""
        if self._begin is None:
            raise RuntimeError("KernelTimer: stop: start() was not called")
        self.watch(outputs)
        self._evaluate()
        self.milliseconds = (time.perf_counter() - self._begin) * 1e3
        self._begin = None
        return self.milliseconds


@contextmanager
def timer(name: str = "") -> Iterator[KernelTimer]:
    """`with timer("projection") as timed: y = timed.watch(f(x))`, then `timed.milliseconds`."""
    timed = KernelTimer(name)
    timed.start()
    yield timed
    timed.stop()
