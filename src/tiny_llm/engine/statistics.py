"""Numbers about an engine and its requests, for metrics."""

from dataclasses import dataclass

from .events import EventReason


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


@dataclass(frozen=True, slots=True)
class Timings:
    """One answer that has ended. Seconds since it was submitted."""

    finish_reason: EventReason
    generated_tokens: int
    queue_seconds: float
    first_token_seconds: float | None  # None: it had no token
    seconds: float
