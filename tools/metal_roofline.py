"""The roofline of the Metal kernels: writes the tables of docs/metal-roofline.md.

    python tools/metal_roofline.py            update the tables
    python tools/metal_roofline.py --check    fail if they are outdated

All numbers are calculated, none is measured. The document cites measurements of others.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from roofline.attention import decode, merge, prefill, readable
from roofline.model import DEVICES, ENOUGH_SIMD_GROUPS, LANES, RATES
from roofline.quantized import few_rows, many_rows

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "metal-roofline.md"
KERNELS = (
    readable(),
    prefill("f32", 4, 128),
    prefill("f16", 2, 128),
    prefill("f16", 2, 64),
    prefill("f16", 2, 256),
    decode("f16", 2),
    merge(),
    few_rows(1),
    few_rows(8),
    many_rows(),
)


def table(header: list[str], rows: list[list[str]]) -> str:
    aligned = ["---" if i == 0 else "--:" for i in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, aligned, *rows])


def devices() -> str:
    rows = [
        [
            device.name,
            str(device.cores),
            f"{device.ghz:.3f}",
            f"{device.peak / 1e12:.2f}",
            f"{device.bandwidth:.0f}",
            f"{device.peak / device.bandwidth / 1e9:.0f}",
        ]
        for device in DEVICES
    ]
    head = ["GPU", "cores", "GHz", "float32 peak, TFLOP/s", "memory, GB/s", "operations per byte at balance"]
    return table(head, rows)


def occupancy() -> str:
    rows = []
    for kernel in KERNELS:
        count, limit = kernel.threadgroups_on_core()
        simd_groups = count * kernel.threads // LANES
        rows.append(
            [
                f"{kernel.name}; {kernel.call}",
                str(kernel.threads),
                str(kernel.threadgroup_bytes),
                str(kernel.registers),
                f"{count}, by {limit}",
                f"{simd_groups}{'' if simd_groups >= ENOUGH_SIMD_GROUPS else ' (few)'}",
            ]
        )
    on_a_core = ["threadgroups on a core", "SIMD groups on a core"]
    head = ["kernel and call", "threads", "threadgroup memory, bytes", "registers", *on_a_core]
    return table(head, rows)


def cycles() -> str:
    rows = []
    for kernel in KERNELS:
        multiply_adds = kernel.operations / 2 / kernel.units / RATES["arithmetic"]
        numbers = [multiply_adds, *kernel.cycles().values()]
        rows.append([f"{kernel.name}; {kernel.call}", kernel.unit, *(f"{number:.4g}" for number in numbers)])
    return table(["kernel and call", "unit of a SIMD group", "multiply-adds alone", *RATES], rows)


def work() -> str:
    rows = [
        [
            kernel.name,
            kernel.call,
            f"{kernel.operations / 1e9:.3g}",
            f"{kernel.once / 1e6:.4g}",
            f"{kernel.uncached / 1e6:.4g}",
            f"{kernel.operations / kernel.once:.4g}",
            f"{kernel.operations / kernel.uncached:.3g}",
        ]
        for kernel in KERNELS
    ]
    head = ["kernel", "call", "10⁹ operations", "MB, once", "MB, uncached", "operations per byte", "uncached"]
    return table(head, rows)


def bounds(*, at_best: bool) -> str:
    rows = []
    for kernel in KERNELS:
        cells = []
        for device in DEVICES:
            seconds, limit = kernel.seconds(device, at_best=at_best)
            if kernel.is_memory_bound:
                speed = kernel.once / seconds / 1e9
                cells.append(f"{speed:.0f} GB/s, {speed / device.bandwidth:.0%}: {limit}")
            else:
                speed = kernel.operations / seconds
                cells.append(f"{speed / 1e12:.2f} TFLOP/s, {speed / device.peak:.0%}: {limit}")
        rows.append([f"{kernel.name}; {kernel.call}", *cells])
    return table(["kernel and call", *(device.name for device in DEVICES)], rows)


TABLES = {
    "devices": devices,
    "work": work,
    "occupancy": occupancy,
    "cycles": cycles,
    "at best": lambda: bounds(at_best=True),
    "at worst": lambda: bounds(at_best=False),
}


def renewed(document: str) -> str:
    """The document with each table computed anew, between its two marks."""
    for name, make in TABLES.items():
        marks = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.S)
        before, *rest = marks.split(document)
        if len(rest) != 3:
            raise ValueError(f"the document needs exactly one place for the table '{name}'")
        start, end, after = rest
        document = f"{before}{start}\n{make()}\n\n{end}{after}"
    return document


def main() -> int:
    document = DOCUMENT.read_text()
    new = renewed(document)
    if "--check" in sys.argv[1:]:
        return int(new != document)
    DOCUMENT.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
