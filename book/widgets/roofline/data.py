"""The points of the roofline explorer, from the records of the benchmarks with two threads."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

Record = dict[str, Any]

RESULTS = Path(__file__).parents[3] / "benches/results"
FILES = sorted(RESULTS.glob("*/*.json"))
THREADS = 2
OURS = "ours"  # the name of tiny-llm in a record
ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
FAR = 64 * 2**20  # bytes; what is larger is in no cache


def of_one_row(row: Record) -> bool:
    return " 1 x " in row["row"]


def of_groups(*groups: str) -> Callable[[Record], bool]:
    return lambda row: row["group"] in groups


def any_row(row: Record) -> bool:
    return True


# The rows of an operation: a benchmark, and which of its rows.
OPERATIONS: dict[str, list[tuple[str, Callable[[Record], bool]]]] = {
    "decode, one token": [
        ("attention", of_groups("decode")),
        ("decode", any_row),
        ("kernels", of_one_row),
        ("linear", of_one_row),
    ],
    "prefill of a model": [("peers", any_row)],
    "attention": [
        ("attention", of_groups("f32", "bf16", "short", "window")),
        ("prefill", any_row),
        ("crossover", any_row),
    ],
    "quantized products": [("kernels", of_groups("packed"))],
    "dense products": [("linear", any_row)],
}


def data() -> dict[str, Any]:
    """For each machine its runs, the bandwidth of memory, and points by operation, in order of intensity."""
    machines: dict[str, dict[str, Record]] = {}
    for file in FILES:
        machines.setdefault(file.parent.name, {})[file.stem] = json.loads(file.read_text())
    return {name: machine(records) for name, records in machines.items()}


def machine(records: dict[str, Record]) -> dict[str, Any]:
    operations = {
        operation: sorted(
            (
                point
                for benchmark, wanted in sources
                if benchmark in records
                for point in points(benchmark, records[benchmark], wanted)
            ),
            key=intensity,
        )
        for operation, sources in OPERATIONS.items()
    }
    return {
        "runs": {
            name: f"pdm bench {record['benchmark']}, {record['measured'][:10]}"
            for name, record in records.items()
        },
        "memory": memory_bandwidth(records),
        "operations": {name: found for name, found in operations.items() if found},
    }


def points(benchmark: str, record: Record, wanted: Callable[[Record], bool]) -> Iterator[dict[str, Any]]:
    """Rates in GFLOP/s and GB/s. Without a bandwidth, the record says that memory is no limit."""
    for row in record["rows"]:
        if row["threads"] != THREADS or not row["flops"] or not wanted(row):
            continue
        ours = next((each for each in row["contestants"] if each["name"] == OURS and each["passed"]), None)
        if ours is None:
            continue
        peaks = {name: samples for name, samples in row["ceilings"].items() if name.startswith("peak ")}
        peak = peaks[f"peak {ours['isa']}"] if ours["isa"] else next(iter(peaks.values()))
        bandwidth = row["ceilings"].get("bandwidth")
        yield {
            "row": row["row"],
            "benchmark": benchmark,
            "flops": row["flops"],
            "bytes": bytes_of(row),
            "rate": ours["gflops"],
            "peak": peak["median"] / 1e9,
            "bandwidth": bandwidth["median"] / 1e9 if bandwidth else None,
        }


def intensity(point: dict[str, Any]) -> float:
    return float(point["flops"] / point["bytes"])


def bytes_of(row: Record) -> int:
    """Bytes that a row must read and write. Of attention to one token, records count keys and values."""
    if row.get("bytes"):
        return int(row["bytes"])
    item, D = ITEM_BYTES[row["dtype"]], row["D"]
    if "length" in row:  # packed prompts: query, key, value and output
        return int(row["count"] * row["length"] * D * item * 2 * (row["heads"] + row["kv_heads"]))
    queries = 0 if row["group"] == "decode" else 2 * row["heads"] * row["L"] * D * item
    return int(row["kv_bytes"] + queries)


def memory_bandwidth(records: dict[str, Record]) -> float:
    """GB/s of reads that no cache serves: the median over all such rows."""
    return median(
        row["ceilings"]["bandwidth"]["median"] / 1e9
        for record in records.values()
        for row in record["rows"]
        if row["threads"] == THREADS and "bandwidth" in row.get("ceilings", {}) and bytes_of(row) > FAR
    )


def table() -> list[str]:
    """For readers without scripts: the points of least and most intensity of each machine and operation."""
    lines = [
        "| machine | operation | row | operations per byte | ceiling, GFLOP/s | measured | share |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for name, found in data().items():
        for operation, all_points in found["operations"].items():
            for point in (all_points[0], all_points[-1]):
                ratio, rate = intensity(point), point["rate"]
                ceiling = min(point["peak"], ratio * (point["bandwidth"] or float("inf")))
                numbers = f"{ratio:.3g} | {ceiling:.3g} | {rate:.3g} | {rate / ceiling:.0%}"
                lines.append(f"| {name} | {operation} | {point['row'].replace('->', 'to')} | {numbers} |")
    return lines
