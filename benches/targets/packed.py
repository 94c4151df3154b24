"""Targets of `pdm bench packed`."""

from __future__ import annotations

from collections.abc import Iterator

from benches.cases.pages import Paged
from benches.cases.varlen import Varlen
from benches.harness.row import Row, Verdict, speedup
from benches.names import ALONE, DENSE, PADDED, TINY_LLM

TARGET_THREADS = 2  # targets are defined for two cores
OVER_ALONE = 1.05  # of the sum of the times of each prompt
OVER_PADDED = 2.0
OVER_DENSE = 1.10  # of the time without pages


def judge(case: Varlen | Paged, row: Row) -> Iterator[Verdict]:
    if row.threads != TARGET_THREADS:
        return
    if isinstance(case, Paged):
        yield _time(row, "time against dense", DENSE, OVER_DENSE)
        return
    yield _time(row, "time against each alone", ALONE, OVER_ALONE)
    if case.uneven:  # else there is no padding
        yield speedup(row, PADDED, OVER_PADDED)


def _time(row: Row, what: str, peer: str, limit: float) -> Verdict:
    """The time of tiny_llm, relative to that of another way."""
    own, other = row.seconds(TINY_LLM), row.seconds(peer)
    return Verdict(what, "<=", limit, own / other if own and other else None, "x")
