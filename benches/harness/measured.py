"""What was measured of one piece of work with one thread count, and its form in a results file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benches.contestants.attention import OURS
from benches.harness.row import Entry, Verdict
from tiny_llm.benchmark.harness import Samples


@dataclass(slots=True)
class Measured:
    """Everybody's results for one row of a table, and the ceilings seen in the same rounds.

    `entries` begin with ours. Where `tokens` is set, a sample is the time of that many: tables show rates.
    """

    group: str
    name: str
    threads: int
    flops: float = 0.0
    bytes: int = 0  # that must be read and written, whoever computes
    tokens: int = 0
    gate: str = ""
    entries: list[Entry] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    ceilings: dict[str, Samples] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)

    def subject(self) -> Entry | None:
        """Our entry that the targets speak about."""
        return next((entry for entry in self.entries if entry.name == OURS), None)

    def seconds(self, name: str) -> float | None:
        """The median of a contestant, if it was timed."""
        return next((e.seconds.median for e in self.entries if e.name == name and e.seconds), None)

    def record(self) -> dict[str, Any]:
        return {
            "row": self.name,
            "group": self.group,
            "threads": self.threads,
            "flops": self.flops,
            "bytes": self.bytes,
            "tokens": self.tokens,
            "gate": self.gate,
            "contestants": [entry.record() for entry in self.entries],
            "missing": self.missing,
            "ceilings": {name: samples.record() for name, samples in self.ceilings.items()},
            "targets": [verdict.record() for verdict in self.verdicts],
        }


def speedup(row: Measured, peer: str, limit: float) -> Verdict:
    """How many times as fast as a peer we are."""
    ours, theirs = row.seconds(OURS), row.seconds(peer)
    return Verdict(f"speed over {peer}", ">=", limit, theirs / ours if ours and theirs else None, "x")
