"""The parallel regions of a call, by operation: the log of the thread pool, summed up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tiny_llm.runtime.extension import load_extension
from tiny_llm_tools.benchmark.clock import time_once

NANOSECOND = 1e-9
Region = Mapping[str, Any]  # as `end_region_log` returns it


@dataclass(slots=True)
class RegionLog:
    """Times a call as `time_once` does, and keeps its regions, of all threads of the process."""

    regions: list[Region] = field(default_factory=list)

    def timed(self, call: Callable[[], Any]) -> tuple[Any, float]:
        extension = load_extension()
        extension.start_region_log()
        try:
            return time_once(call)
        finally:
            self.regions = extension.end_region_log()


@dataclass(frozen=True, slots=True)
class OperationTime:
    """The sums of an operation."""

    operation: str
    regions: float
    seconds: float  # whole operations; of regions outside one, that of the regions
    in_regions: float
    imbalance: float | None  # the busiest thread of each region over the mean; None without regions

    def record(self) -> dict[str, Any]:
        return asdict(self)


def by_operation(log: Iterable[Region], calls: int) -> list[OperationTime]:
    """The mean of `calls` calls that are in the log, in the order of the operations' first ends."""
    found: dict[str, list[Region]] = defaultdict(list)
    for region in log:
        found[region["operation"]].append(region)
    return [_sum(operation, regions, calls) for operation, regions in found.items()]


def _sum(operation: str, log: list[Region], calls: int) -> OperationTime:
    regions = [each for each in log if each["items"]]
    whole = [each for each in log if not each["items"]]
    in_regions = _seconds(regions) / calls
    mean_busy = sum(each["busy"] / each["threads"] for each in regions)
    return OperationTime(
        operation,
        len(regions) / calls,
        _seconds(whole) / calls if whole else in_regions,
        in_regions,
        sum(each["longest"] for each in regions) / mean_busy if mean_busy else None,
    )


def _seconds(log: Iterable[Region]) -> float:
    return NANOSECOND * sum(each["end"] - each["begin"] for each in log)
