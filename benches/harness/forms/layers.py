"""`pdm bench flashtile layers`: whole layers by sequence length, as JSON and plots."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from benches.cases.flashtile import LENGTHS, Case
from benches.harness import machine
from benches.harness.forms.rows import DENSE, NAMES, measure_case
from benches.report.tables import table
from tiny_llm.cli.arguments import integer
from tiny_llm.cli.output_files import write_whole
from tiny_llm_tools.benchmark.pictures import check_plotting
from tiny_llm_tools.profile import BenchmarkDashboard

Record = dict[str, Any]
Numbers = list[float | None]
MB = 1e6
WARMUPS = 2
MOST_SCORE_BYTES = 2**31  # of one score matrix of all heads; those that hold all scores keep several
IMPLEMENTATIONS = tuple(NAMES)  # the first is the baseline


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 if a result of tiny_llm was wrong."""
    options = _options(_parser(), argv)
    mx.set_default_device(getattr(mx, options.device))
    draws = options.save_dir and not options.no_plots
    if draws:
        try:
            check_plotting()
        except RuntimeError as missing:  # the text says what to do
            print(f"bench flashtile layers: {missing}", file=sys.stderr)
            return 1
    lengths = [length for length in LENGTHS if length <= options.max_seq_len]
    cases = [
        Case(
            "module", "float32", length, not options.non_causal, options.batch_size,
            options.embed_dim, options.num_heads, kv_heads_of(options.num_heads),
        )
        for length in lengths
    ]  # fmt: skip
    record = record_of(cases, options.num_runs, options.device)
    text = as_json(record)
    if options.save_dir:
        options.save_dir.mkdir(parents=True, exist_ok=True)
        write_whole(options.save_dir / "results.json", text)
        if draws:
            BenchmarkDashboard(options.theme).plot(record).save(options.save_dir / "dashboard.png")
        print(as_table(record))
    else:
        print(text, end="")
    return 1 if any(None in record["results"][name]["time_ms"] for name in NAMES.keys() - DENSE) else 0


def kv_heads_of(heads: int) -> int:
    """The divisor of the number of heads that is nearest to a quarter of it, of two such the smaller one."""
    divisors = (count for count in range(1, heads + 1) if heads % count == 0)
    return min(divisors, key=lambda count: abs(count - heads / 4))


def record_of(cases: Sequence[Case], runs: int, device: str = "cpu") -> Record:
    """Medians in ms and peaks in MB of 1e6 bytes by length, and both of the baseline divided by them.

    None where a result was wrong, or where all scores would be too large.
    """
    results: dict[str, dict[str, Numbers]] = {
        name: {"time_ms": [], "memory_mb": []} for name in IMPLEMENTATIONS
    }
    for case in cases:
        print(f"{case.name} ...", file=sys.stderr, flush=True)
        fits = 4 * case.batch * case.heads * case.length**2 <= MOST_SCORE_BYTES
        names = [name for name in IMPLEMENTATIONS if fits or name not in DENSE]
        entries = {entry.name: entry for entry in measure_case(case, names, WARMUPS, runs).entries}
        for name, numbers in results.items():
            entry = entries.get(NAMES[name])
            right = entry is not None and entry.seconds is not None
            numbers["time_ms"].append(entry.seconds.median * 1e3 if right else None)
            numbers["memory_mb"].append(entry.peak_bytes / MB if right else None)
    first = cases[0]
    config = {
        "device": device,
        "seq_lengths": [case.length for case in cases],
        "batch_size": first.batch,
        "embed_dim": first.embed_dim,
        "num_heads": first.heads,
        "num_kv_heads": first.kv_heads,
        "causal": first.causal,
        "dtype": first.dtype,
        "num_runs": runs,
        "num_warmups": WARMUPS,
        **machine.describe(),
    }
    return {
        "config": config,
        "results": results,
        "speedups": _over_baseline(results, "time_ms"),
        "reductions": _over_baseline(results, "memory_mb"),
    }


def _over_baseline(results: dict[str, dict[str, Numbers]], measure: str) -> dict[str, Numbers]:
    baseline = results[IMPLEMENTATIONS[0]][measure]
    return {
        name: [
            base / own if base and own else None for base, own in zip(baseline, numbers[measure], strict=True)
        ]
        for name, numbers in results.items()
    }


def as_json(record: Record) -> str:
    """Strict JSON: null for None, and an error for NaN or infinity."""
    return json.dumps(record, indent=1, allow_nan=False) + "\n"


def as_table(record: Record) -> str:
    """A line for each length and layer."""
    header = ["tokens", "layer", "ms", "speedup", "peak MB", "reduction"]
    body = []
    for number, length in enumerate(record["config"]["seq_lengths"]):
        for name, numbers in record["results"].items():
            found = (numbers["time_ms"], record["speedups"][name], numbers["memory_mb"])
            cells = (column[number] for column in (*found, record["reductions"][name]))
            body.append([str(length), name, *("" if cell is None else f"{cell:.3g}" for cell in cells)])
    return table(header, body)


def _options(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser.parse_args(argv)
    if options.device == "gpu" and not mx.is_available(mx.gpu):
        parser.error("--device: got gpu, expected cpu: MLX finds no GPU on this machine")
    if options.max_seq_len < LENGTHS[0]:
        parser.error(f"--max-seq-len: got {options.max_seq_len}, expected at least {LENGTHS[0]}")
    if options.embed_dim % options.num_heads:
        parser.error(
            f"--embed-dim: got {options.embed_dim}, expected a multiple of {options.num_heads} heads"
        )
    for flag in ("theme", "no_plots"):
        if getattr(options, flag) and not options.save_dir:
            parser.error(f"--{flag.replace('_', '-')}: without --save-dir there are no plots")
    if options.theme and options.no_plots:
        parser.error("--theme: with --no-plots there are no plots")
    options.theme = options.theme or "light"
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pdm bench flashtile layers",
        description="Measures attention layers in float32 with both projections: time and peak memory by\n"
        f"sequence length ({', '.join(map(str, LENGTHS))}), after {WARMUPS} warm-ups. Every result is\n"
        "checked before it is timed. A MB is 1e6 bytes. Prints JSON, or with --save-dir writes\n"
        "results.json and dashboard.png there and prints a table.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--device", choices=["cpu", "gpu"], default="cpu", help="default: cpu")
    add("--max-seq-len", type=integer(1), default=4096, metavar="N", help="longest length (default: 4096)")
    add("--batch-size", type=integer(1), default=2, metavar="B", help="sequences (default: 2)")
    add("--embed-dim", type=integer(1), default=512, metavar="E", help="default: 512")
    add("--num-heads", type=integer(1), default=8, metavar="H", help="default: 8; gqa has about a quarter")
    add("--num-runs", type=integer(1), default=5, metavar="R", help="samples; the median counts (default: 5)")
    add("--save-dir", type=Path, metavar="DIR", help="write results.json and dashboard.png to this folder")
    add("--theme", choices=["light", "dark"], help="of the plots (default: light)")
    add("--non-causal", action="store_true", help="every token sees every other")
    add("--no-plots", action="store_true", help="write results.json only")
    return parser
