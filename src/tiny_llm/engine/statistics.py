"""Counts what an engine does, for metrics, and tells observers of the answers that end."""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ..cache.pages import PagePool
from ..scheduler import Plan, Scheduler
from .request import Timings

LOG = logging.getLogger(__name__)
RECENT_STEPS = 1024


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """The present state, and totals since the start. Speculation counts drafts, all and accepted."""

    running: int
    waiting: int
    pages_total: int
    pages_used: int
    page_size: int
    prefix_queries: int
    prefix_hits: int
    preemptions: int
    prompt_tokens: int
    generation_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    steps: int
    step_tokens: tuple[int, ...]  # of the latest steps
    last_step_at: float  # of the monotonic clock


class Recorder:
    """Totals since the start. The engine's thread changes them; others may read."""

    def __init__(self) -> None:
        self.last_step_at = time.monotonic()
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.observers: list[Callable[[Timings], None]] = []
        self._recent_steps: deque[int] = deque(maxlen=RECENT_STEPS)

    def add_step(self, plan: Plan) -> None:
        """A step that was computed."""
        self._recent_steps.append(sum(len(row.token_ids) for row in plan.rows))

    def add_end(self, timings: Timings) -> None:
        """An answer that has ended."""
        for observe in self.observers:
            try:
                observe(timings)
            except Exception:  # not the engine's: its requests go on
                LOG.exception("an observer failed")

    def statistics(self, scheduler: Scheduler, pages: PagePool, submitted: int) -> EngineStatistics:
        """The present state, and the totals. `submitted` requests have not reached the scheduler."""
        counters = scheduler.counters
        return EngineStatistics(
            running=len(scheduler.running),
            waiting=submitted + len(scheduler.waiting),
            pages_total=pages.num_pages,
            pages_used=pages.num_used,
            page_size=pages.page_size,
            prefix_queries=counters.prefix_queries,
            prefix_hits=counters.prefix_hits,
            preemptions=counters.preemptions,
            prompt_tokens=self.prompt_tokens,
            generation_tokens=self.generation_tokens,
            drafted_tokens=counters.drafted_tokens,
            accepted_tokens=counters.accepted_tokens,
            steps=counters.steps,
            step_tokens=tuple(self._recent_steps),
            last_step_at=self.last_step_at,
        )
