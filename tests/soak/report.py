"""What a run must show, and what it showed: as text and as JSON."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from .clients import Outcomes

# Of memory: the first part of a run fills caches. Afterwards resident memory may grow by this much in all.
WARM_UP_SHARE = 0.3
MOST_GROWTH = 16 * 2**20
# A client asks its next question when it has an answer, so a request is answered after clients / throughput
# on average, queue included. The first tokens of one in a hundred may take this many times as long.
MOST_TIMES_MEAN = 3.0


@dataclass(frozen=True)
class Check:
    name: str
    passed: bool
    found: str


@dataclass(frozen=True)
class Run:
    """Everything that was observed. memory: pairs of seconds since the start and bytes."""

    clients: int
    seconds: float
    outcomes: Outcomes
    memory: list[tuple[float, int]]
    metrics: dict[str, float]
    reported: Counter[str]
    errors: list[str]
    exit_code: int
    changed: list[str]  # files of the program


def checks(run: Run) -> list[Check]:
    return [
        _answers(run),
        _ends(run),
        _pages(run),
        _memory(run),
        _first_tokens(run),
        Check("no error in the log", not run.errors, f"{len(run.errors)} errors {run.errors[:3]}"),
        Check("SIGTERM ends the server with 0", run.exit_code == 0, f"exit code {run.exit_code}"),
        Check("the program stayed as it was", not run.changed, f"{len(run.changed)} files {run.changed[:3]}"),
    ]


def _answers(run: Run) -> Check:
    """Every answer is the known one, and every bad request is refused as promised."""
    right = sum(run.outcomes.counts[f"{kind}/right"] for kind in ("good", "stream", "slow", "schema"))
    found = f"{right} right answers, {len(run.outcomes.problems)} problems {run.outcomes.problems[:3]}"
    return Check("answers are the known ones", right > 0 and not run.outcomes.problems, found)


def _ends(run: Run) -> Check:
    """The log reports each request that was read to its end once, and no request twice."""
    lost = [name for name in run.outcomes.awaited if run.reported[name] != 1]
    twice = [name for name in run.outcomes.left if run.reported[name] > 1]
    found = f"{len(run.outcomes.awaited)} awaited, {len(lost)} not reported once, {len(twice)} left and twice"
    return Check("every request has one end", not lost and not twice, f"{found} {[*lost, *twice][:3]}")


def _pages(run: Run) -> Check:
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    left = {name: run.metrics[name] for name in names}
    return Check("at rest no request and no used page", not any(left.values()), str(left))


def _memory(run: Run) -> Check:
    growth = growth_of(run.memory)
    size = run.memory[-1][1] >> 20
    found = f"{growth / 2**20:+.1f} MiB after the first {WARM_UP_SHARE:.0%}, of {size} MiB"
    return Check(f"memory grows by at most {MOST_GROWTH >> 20} MiB", growth <= MOST_GROWTH, found)


def growth_of(memory: list[tuple[float, int]]) -> float:
    """Bytes by which the line through the samples rises, from the end of the warm-up to the last one."""
    kept = memory[int(len(memory) * WARM_UP_SHARE) :]
    times, sizes = zip(*kept, strict=True)
    slope, _ = statistics.linear_regression(times, sizes)
    return slope * (times[-1] - times[0])


def _first_tokens(run: Run) -> Check:
    ended = sum(n for outcome, n in run.outcomes.counts.items() if outcome.endswith("/right"))
    limit = MOST_TIMES_MEAN * run.clients * run.seconds / max(ended, 1)
    p99 = percentile(run.outcomes.first_tokens, 0.99)
    name = f"p99 time to first token at most {MOST_TIMES_MEAN:g} x clients / throughput"
    return Check(name, p99 <= limit, f"{p99:.2f} s of at most {limit:.2f} s")


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else float("inf")


def as_json(run: Run) -> dict[str, Any]:
    first = run.outcomes.first_tokens
    return {
        "clients": run.clients,
        "seconds": round(run.seconds, 1),
        "requests": run.outcomes.sent,
        "outcomes": dict(sorted(run.outcomes.counts.items())),
        "first_token_seconds": {f"p{p}": round(percentile(first, p / 100), 4) for p in (50, 90, 99)},
        "memory": [[round(second, 1), size] for second, size in run.memory],
        "metrics": {name: value for name, value in run.metrics.items() if "bucket" not in name},
        "problems": run.outcomes.problems,
        "checks": [asdict(check) for check in checks(run)],
    }


def as_text(run: Run) -> str:
    first = run.outcomes.first_tokens
    per_second = run.outcomes.sent / run.seconds
    preempted = run.metrics["num_preemptions_total"]
    lines = [
        f"{run.clients} clients, {run.seconds:.0f} s: {run.outcomes.sent} requests, {per_second:.1f} / s",
        f"  {preempted:.0f} preemptions",
        *(f"  {outcome:30} {count}" for outcome, count in sorted(run.outcomes.counts.items())),
        "  time to first token: "
        + ", ".join(f"p{p} {percentile(first, p / 100):.3f} s" for p in (50, 90, 99)),
        *(f"{'passed' if check.passed else 'FAILED'}: {check.name}: {check.found}" for check in checks(run)),
    ]
    return "\n".join(lines)
