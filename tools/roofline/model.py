"""GPUs, the rates of their cores, and the resources that a kernel needs."""

from __future__ import annotations

from dataclasses import dataclass

LANES = 32


# Rates of a core per cycle. The document says which are measured by others and which are assumed.
RATES = {
    "arithmetic": 128.0,  # instructions of one lane; matrix products use the same units
    "exp": 32.0,  # of one lane
    "shuffles": 64.0,  # of one lane
    "threadgroup memory": 128.0,  # bytes
    "loads": 64.0,  # bytes, between the core and its data cache
    "cache lines": 1.0,  # touched by the loads of a SIMD group
}
LINE = 128  # bytes
REGISTER_FILE = 208 * 1024  # bytes of a core
THREADGROUP_MEMORY = 60 * 1024  # bytes of a core
MAX_THREADS = 3072  # of a core
MAX_REGISTERS = 128  # of a thread
ENOUGH_SIMD_GROUPS = 24  # on a core, for full use of its arithmetic units
ADDRESSES = 24  # registers of a thread for addresses and counters: an estimate


@dataclass(frozen=True)
class Device:
    name: str
    cores: int
    ghz: float
    bandwidth: float  # GB/s

    @property
    def peak(self) -> float:
        """float32, in operations a second: 128 multiply-adds a core and cycle."""
        return self.cores * self.ghz * 1e9 * 2 * RATES["arithmetic"]


DEVICES = (
    Device("M1", 8, 1.278, 68.25),
    Device("M2", 10, 1.398, 102.4),
    Device("M3", 10, 1.398, 102.4),
    Device("M4", 10, 1.470, 120.0),
)


@dataclass(frozen=True)
class Kernel:
    """A kernel and one call: the resources of a unit of work of a SIMD group, and the number of units."""

    name: str
    source_name: str  # the function in the Metal source
    call: str
    unit: str
    need: dict[str, float]
    units: float
    operations: float
    once: float  # bytes, if every number is read from memory once
    uncached: float  # bytes, if every threadgroup reads its inputs from memory
    threads: int  # of a threadgroup
    threadgroup_bytes: int
    registers: int  # of a thread
    is_memory_bound: bool = False  # by design, so its speed is given as bandwidth

    def cycles(self) -> dict[str, float]:
        """Cycles of a core for a unit of work, by resource."""
        return {name: self.need.get(name, 0.0) / rate for name, rate in RATES.items()}

    def seconds(self, device: Device, *, at_best: bool) -> tuple[float, str]:
        """The time of the limiting resource, and its name.

        At best, caches serve everything that is read twice, and a load costs only its bytes. At worst,
        threadgroups share no cache, and each line that a load touches costs a cycle.
        """
        a_cycle = self.units / (device.cores * device.ghz * 1e9)
        times = {name: cycles * a_cycle for name, cycles in self.cycles().items()}
        if at_best:
            del times["cache lines"]
        times["memory"] = (self.once if at_best else self.uncached) / (device.bandwidth * 1e9)
        limit = max(times, key=lambda name: times[name])
        return times[limit], limit

    def threadgroups_on_core(self) -> tuple[int, str]:
        """How many threadgroups fit on a core, and the resource that limits them."""
        by_registers = REGISTER_FILE // (4 * min(self.registers, MAX_REGISTERS)) // self.threads
        limits = {"registers": by_registers, "threads": MAX_THREADS // self.threads}
        if self.threadgroup_bytes:
            limits["threadgroup memory"] = THREADGROUP_MEMORY // self.threadgroup_bytes
        most = min(limits.values())
        return most, " and ".join(name for name, limit in limits.items() if limit == most)
