"""Targets of `pdm bench training`."""

from __future__ import annotations

from collections.abc import Iterator

from benches.cases.attention import Case
from benches.harness.row import Row, Verdict, speedup
from benches.names import MX_FAST, NO_WINDOW, PYTORCH, TINY_LLM

TARGET_THREADS = 2  # targets are defined for two cores
OVER_PYTORCH = 1.2
OVER_MX_FAST = 20.0
OVER_MX_FAST_TOKENS = 2048  # the length of the target
WINDOW_SLACK = 1.4
MEMORY_SLACK = 1.1  # of saved tensors and gradients
GROWTH = 2.1  # when the length doubles


def judge(case: Case, row: Row) -> Iterator[Verdict]:
    """The targets of a timed row."""
    if row.threads != TARGET_THREADS:
        return
    if case.window is not None:
        yield Verdict("time against the windowless one", "<=", window_bound(row), row.seconds(TINY_LLM), "s")
        return
    yield speedup(row, PYTORCH, OVER_PYTORCH)
    if case.L == OVER_MX_FAST_TOKENS:
        yield speedup(row, MX_FAST, OVER_MX_FAST)


def window_bound(row: Row) -> float | None:
    """Seconds without a window, times the share of tiles that the window visits, times the slack."""
    full = row.seconds(NO_WINDOW)
    visited, total = row.details["tiles"]
    return WINDOW_SLACK * visited / total * full if full else None


def memory(peak: int, needed: int) -> Verdict:
    """The peak against the bytes that have to exist together."""
    return Verdict("peak over saved tensors and gradients", "<=", MEMORY_SLACK, peak / needed, "x")


def growth(peak: int, half: int) -> Verdict:
    """The peak against that of half the tokens."""
    return Verdict("peak over that of half the tokens", "<=", GROWTH, peak / half, "x")
