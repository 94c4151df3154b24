"""One row of a table: a case with one number of threads, its contestants and its targets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from benches.names import FORMS, TINY_LLM
from tiny_llm_tools.benchmark.clock import Samples

MAX_SHARE = 1.05  # a larger share of peak, noise included, means that the peak was measured too low


@dataclass(frozen=True, slots=True)
class Entry:
    """One contestant's part in a row. Without `seconds` its result was wrong."""

    name: str
    isa: str | None
    variant: str
    error: float
    seconds: Samples | None
    flops: float
    floor: float  # seconds that the hardware alone would need, by its measured ceilings
    absolute_error: float | None = None
    peak_bytes: int | None = None  # by MLX's counter, beyond what existed before the call

    @property
    def share_of_peak(self) -> float | None:
        """Share of the peak of the multiply units, or of the bandwidth where that is the tighter limit."""
        return self.floor / self.seconds.median if self.seconds and self.floor else None

    def record(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "isa": self.isa,
            "variant": self.variant,
            "passed": self.seconds is not None,
            "error": self.error,
            "absolute_error": self.absolute_error,
            "peak_bytes": self.peak_bytes,
            "seconds": self.seconds.record() if self.seconds else None,
            "gflops": self.flops / self.seconds.median / 1e9 if self.seconds else None,
            "floor_seconds": self.floor,
            "share_of_peak": self.share_of_peak,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target and whether it was met; None if a contestant that it needs is missing."""

    what: str
    relation: str  # ">=" or "<="
    limit: float | None
    value: float | None
    unit: str

    @property
    def met(self) -> bool | None:
        if self.value is None or self.limit is None:
            return None
        return self.value >= self.limit if self.relation == ">=" else self.value <= self.limit

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


@dataclass(slots=True)
class Row:
    """`entries` begin with tiny_llm. With `tokens`, a sample is the time of that many; tables show rates."""

    group: str
    name: str
    threads: int
    flops: float = 0.0
    bytes: int = 0  # bytes that every contestant must read and write; 0 if memory is no limit
    tokens: int = 0
    gate: str = ""  # how results were checked
    entries: list[Entry] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    ceilings: dict[str, Samples] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)  # more keys of the record

    def subject(self) -> Entry | None:
        """The entry that targets are about: the first of tiny_llm, with the best instruction set."""
        return next((entry for entry in self.entries if entry.name == TINY_LLM), None)

    def seconds(self, name: str) -> float | None:
        """The median of the first contestant of that name that was timed."""
        return next((e.seconds.median for e in self.entries if e.name == name and e.seconds), None)

    def add_entries(self, entries: Iterable[Entry]) -> None:
        """Append entries; of a peer with several FORMS only the fastest, while the record keeps all."""
        by_name = {entry.name: entry for entry in entries}
        for peer, names in FORMS.items():
            forms = [by_name.pop(name) for name in names if name in by_name]
            if forms:
                fastest = min(forms, key=_slowness)
                by_name[peer] = replace(fastest, name=peer, variant=fastest.name)
                self.details.setdefault("forms", {})[peer] = [form.record() for form in forms]
        self.entries += by_name.values()

    def record(self) -> dict[str, Any]:
        return {
            "row": self.name,
            "group": self.group,
            "threads": self.threads,
            "flops": self.flops,
            "bytes": self.bytes,
            "tokens": self.tokens,
            "gate": self.gate,
            **self.details,
            "contestants": [entry.record() for entry in self.entries],
            "missing": self.missing,
            "ceilings": {name: samples.record() for name, samples in self.ceilings.items()},
            "targets": [verdict.record() for verdict in self.verdicts],
        }


def _slowness(entry: Entry) -> float:
    return entry.seconds.median if entry.seconds else float("inf")


def speedup(row: Row, peer: str, limit: float) -> Verdict:
    """The speed of tiny_llm relative to a peer."""
    own, other = row.seconds(TINY_LLM), row.seconds(peer)
    return Verdict(f"speed over {peer}", ">=", limit, other / own if own and other else None, "x")


def share(subject: Entry | None, what: str, limit: float) -> Verdict:
    """The share of peak; unknown above MAX_SHARE."""
    reached = subject.share_of_peak if subject else None
    return Verdict(what, ">=", limit, reached if reached is None or reached <= MAX_SHARE else None, "share")
