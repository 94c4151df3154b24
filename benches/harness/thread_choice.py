"""How many threads decoding should have on this machine, measured without a model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from benches.harness.machine import others_running
from tiny_llm.runtime.extension import load_extension

# A decode step of a small model, for which regions matter most: qwen2-0.5b in 4 bits.
STEP_BYTES, STEP_REGIONS = 280e6, 125
BUFFER = 96 << 20  # more than most caches of a core's share, and quickly written
PROBE_SECONDS = 0.06
NEAR = 1.03  # up to this much slower than the fastest: then fewer threads leave more to others


@dataclass(frozen=True, slots=True)
class Measured:
    """One number of threads: bytes a second, and the seconds of an empty region."""

    bandwidth: float
    region: float

    @property
    def step(self) -> float:
        """Seconds of a step that does nothing but read weights, in its regions."""
        return STEP_BYTES / self.bandwidth + STEP_REGIONS * self.region


def choose() -> str:
    """The value of TINY_LLM_THREADS as a line, and lines that say why."""
    os.environ.pop("TINY_LLM_THREADS", None)  # so that the candidates go up to the default
    prompts, _ = load_extension().cpu_threads()
    busy = others_running() > 0
    return report(prompts, {count: _measure(count) for count in candidates(prompts)}, busy)


def candidates(most: int) -> list[int]:
    """About two for each doubling, `most` among them."""
    found = {most}
    for power in range(most.bit_length()):
        found |= {1 << power, 3 << power >> 1}
    return sorted(count for count in found if count <= most)


def best(measured: Mapping[int, Measured]) -> int:
    """The smallest number of threads whose step is about as fast as the fastest."""
    fastest = min(each.step for each in measured.values())
    return min(count for count, each in measured.items() if each.step <= NEAR * fastest)


def report(prompts: int, measured: Mapping[int, Measured], busy: bool = False) -> str:
    """The choice and, for each candidate, the time of the step by which it was made.

    `busy`: other processes ran meanwhile.
    """
    chosen = best(measured)
    value = str(prompts) if chosen == prompts else f"{prompts},{chosen}"
    steps = ", ".join(f"{count}: {each.step * 1e3:.2f}" for count, each in measured.items())
    own = measured[chosen]
    work = f"{STEP_BYTES / 1e6:.0f} MB in {STEP_REGIONS} regions"
    why = (
        f"A decode step that reads {work} takes at least, in ms by number of threads, {steps}.\n"
        f"With {chosen}: {own.bandwidth / 1e9:.0f} GB/s, and {own.region * 1e6:.1f} µs for a region."
    )
    disturbed = "\nOther processes ran meanwhile: measure again when they do not." if busy else ""
    return f"TINY_LLM_THREADS={value}\n{why}{disturbed}"


def _measure(threads: int) -> Measured:
    extension = load_extension()
    bandwidth = 1e9 * extension.read_bandwidth(BUFFER, threads, PROBE_SECONDS)
    return Measured(bandwidth, extension.pool_costs(threads)["region"])
