"""Processes that pass requests and events on, one by one, and the cores that they share with engines."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

Event = Callable[[], None]
LEAST = 1e-9  # seconds, below which work is done


class Cores:
    """Does work, each on one of `count` cores, and slower while there are fewer; None: no limit."""

    def __init__(self, count: float | None, now: Callable[[], float], at: Callable[[float, Event], None]):
        self._count, self._now, self._at = count, now, at
        self._work: list[tuple[float, Event]] = []
        self._since = 0.0
        self._plan = 0

    @property
    def limited(self) -> bool:
        return self._count is not None

    def work(self, seconds: float, then: Event) -> None:
        """`then` when so much processor time has passed."""
        if self._count is None:
            self._at(self._now() + seconds, then)
            return
        self._advance()
        self._work.append((seconds, then))
        self._plan_next()

    @property
    def _rate(self) -> float:
        assert self._count is not None
        return min(1.0, self._count / max(len(self._work), 1))

    def _advance(self) -> None:
        done = (self._now() - self._since) * self._rate
        self._work = [(left - done, then) for left, then in self._work]
        self._since = self._now()

    def _plan_next(self) -> None:
        self._plan += 1
        if self._work:
            plan, left = self._plan, min(left for left, _ in self._work)
            self._at(self._now() + max(left, 0.0) / self._rate, lambda: self._end(plan))

    def _end(self, plan: int) -> None:
        if plan != self._plan:  # the rate has changed since then
            return
        self._advance()
        ended = [then for left, then in self._work if left <= LEAST]
        self._work = [each for each in self._work if each[0] > LEAST]
        self._plan_next()
        for then in ended:
            then()


@dataclass(frozen=True, slots=True)
class Costs:
    """Processor seconds of a process for each request and each event of an answer."""

    request: float = 0.0
    event: float = 0.0


FREE = Costs()


class Station:
    """A process with such costs, which does one thing at a time."""

    def __init__(self, costs: Costs, cores: Cores):
        self.costs = costs
        self._cores = cores
        self._waiting: deque[tuple[float, Event]] = deque()
        self._busy = False

    def take(self, seconds: float, then: Event) -> None:
        if not seconds:
            then()
            return
        self._waiting.append((seconds, then))
        if not self._busy:
            self._begin()

    def _begin(self) -> None:
        self._busy = True
        seconds, then = self._waiting.popleft()

        def end() -> None:
            self._busy = False
            if self._waiting:
                self._begin()
            then()

        self._cores.work(seconds, end)
