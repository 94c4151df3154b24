"""Targets of `pdm bench serving`."""

from __future__ import annotations

from collections.abc import Iterator

from benches.cases.serving import Case
from benches.contestants.http.clients import Outcome
from benches.harness.row import Row, Verdict
from benches.names import FIRST, LOOP, QUIET, TINY_LLM
from tiny_llm_tools.benchmark.clock import Samples

SECOND_OVER_FIRST = 0.10
GAP_OVER_UNDISTURBED = 3.0
SHARE_WITHOUT_BUDGET = 0.85
MEMORY_GROWTH = 32 * 2**20
WAITS = 2.0  # times that all clients need for a request each


def judge(case: Case, row: Row) -> Iterator[Verdict]:
    """The targets that are ratios of times of the row. There is none against other servers."""
    own = row.seconds(TINY_LLM)
    match case.group:
        case "http":
            yield _ratio("rate of stream_generate", ">=", case.of_process, row.seconds(LOOP), own, "share")
        case "prefix":
            first = row.seconds(FIRST)
            yield _ratio("time of the first request", "<=", SECOND_OVER_FIRST, own, first, "share")
        case "gap":
            alone = row.seconds(QUIET)
            yield _ratio(
                "p99 gap over the gap without the prompt", "<=", GAP_OVER_UNDISTURBED, own, alone, "x"
            )


def budget_verdict(seconds: Samples, without: Samples) -> Verdict:
    """The total throughput, of that without a budget: equal work, so the inverse of the times."""
    share = without.median / seconds.median
    return Verdict("total throughput without a budget", ">=", SHARE_WITHOUT_BUDGET, share, "share")


def clients_verdicts(outcome: Outcome, clients: int) -> Iterator[Verdict]:
    yield Verdict("wrong or lost answers", "<=", 0, len(outcome.wrong), "")
    yield Verdict("pages in use at rest", "<=", 0, outcome.pages_at_rest, "share")
    growth = None if outcome.memory is None else outcome.memory[1] - outcome.memory[0]
    yield Verdict("growth of memory", "<=", MEMORY_GROWTH, growth, "B")
    times = [answer.ttft for answer in outcome.answers if answer.failure is None]
    computed = sum(count for kind, count in outcome.ended.items() if kind != "bad")
    limit = WAITS * clients * outcome.seconds / computed if computed else None
    p99 = Samples(tuple(times)).quantile(0.99) if times else None
    yield Verdict("p99 time to first token", "<=", limit, p99, "s")


def _ratio(
    what: str, relation: str, limit: float | None, above: float | None, below: float | None, unit: str
) -> Verdict:
    return Verdict(what, relation, limit, above / below if above and below else None, unit)
