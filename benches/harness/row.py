"""What was measured for one case with one thread count, and its form in a results file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from benches.cases.attention import Case
from benches.contestants.attention import OURS
from tiny_llm.benchmark.harness import Samples


@dataclass(frozen=True, slots=True)
class Entry:
    """One contestant's part in a row. Without `seconds` it failed the gate."""

    name: str
    isa: str | None
    variant: str
    error: float
    seconds: Samples | None
    flops: float
    floor: float  # seconds that the hardware alone would need, by its measured ceilings

    @property
    def label(self) -> str:
        return f"{self.name} {self.isa}" if self.isa else self.name

    @property
    def share_of_peak(self) -> float | None:
        """Of the multiply units' peak; of the memory's bandwidth where that is the tighter limit."""
        return self.floor / self.seconds.median if self.seconds and self.floor else None

    def record(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "isa": self.isa,
            "variant": self.variant,
            "passed": self.seconds is not None,
            "error": self.error,
            "seconds": self.seconds.record() if self.seconds else None,
            "gflops": self.flops / self.seconds.median / 1e9 if self.seconds else None,
            "floor_seconds": self.floor,
            "share_of_peak": self.share_of_peak,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target and whether it was met; None where somebody needed for it is missing."""

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


MOST_SHARE = 1.05  # a share beyond this, noise allowed for, says that the ceiling was measured too low


def share(subject: Entry | None, what: str, limit: float) -> Verdict:
    """How much of what the machine allows is reached; unknown where that comes out as more than all of it."""
    reached = subject.share_of_peak if subject else None
    return Verdict(what, ">=", limit, reached if reached is None or reached <= MOST_SHARE else None, "share")


@dataclass(slots=True)
class Row:
    """A case, a thread count, everybody's results, and the ceilings seen in the same rounds."""

    case: Case
    threads: int
    gate: str = ""
    entries: list[Entry] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    ceilings: dict[str, Samples] = field(default_factory=dict)
    tiles: tuple[int, int] | None = None  # visited, of a windowed run, and all there are
    extra_bytes: dict[str, int] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)

    def subject(self) -> Entry | None:
        """Our entry that the targets speak about: the first, with the best instruction set asked for."""
        return next((entry for entry in self.entries if entry.name == OURS), None)

    def seconds(self, name: str) -> float | None:
        """The median of the first contestant of that name, if it was timed."""
        for entry in self.entries:
            if entry.name == name and entry.seconds is not None:
                return entry.seconds.median
        return None

    def record(self) -> dict[str, Any]:
        case = self.case
        return {
            "row": case.name,
            **asdict(case),
            "threads": self.threads,
            "flops": case.flops,
            "kv_bytes": case.kv_bytes,
            "gate": self.gate,
            "contestants": [entry.record() for entry in self.entries],
            "missing": self.missing,
            "ceilings": {name: samples.record() for name, samples in self.ceilings.items()},
            "tiles": self.tiles,
            "extra_bytes": self.extra_bytes,
            "targets": [verdict.record() for verdict in self.verdicts],
        }
