"""`pdm bench flashtile functions`: attention alone by sequence length, as a table or CSV."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields

import mlx.core as mx

from benches.cases.flashtile import Case
from benches.contestants import flashtile as contestants
from benches.harness.forms.rows import DENSE, NAMES, measure_case
from benches.harness.row import Entry
from benches.harness.types import ITEM_BYTES
from benches.report.tables import table
from tiny_llm.cli.arguments import integer
from tiny_llm_tools.profile import Peaks, attention_bytes, attention_flops, measured_peaks

BATCH, HEADS, HEAD_DIM, DTYPE = 2, 8, 64, "float16"
IMPLEMENTATIONS = ("naive", "flash_v1", "flash_v2", "sdpa")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the CSV; without a time, the result was wrong."""

    name: str
    batch_size: int
    seq_len: int
    num_heads: int
    head_dim: int
    causal: bool
    latency_ms: float | None
    throughput_tflops: float | None
    memory_bandwidth_tb: float | None
    memory_utilization_pct: float | None
    compute_utilization_pct: float | None
    vs_baseline_speedup: float | None


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 if a result of tiny_llm was wrong."""
    options = _parser().parse_args(argv)
    mx.set_default_device(mx.cpu)
    peaks = measured_peaks(getattr(mx, DTYPE))
    lines: list[Line] = []
    for length in options.seq_lengths:
        embed_dim = HEADS * HEAD_DIM
        case = Case("attention", DTYPE, length, causal=True, batch=BATCH, embed_dim=embed_dim, heads=HEADS)
        lines += lines_of(case, options.implementations, options.warmup, options.iters, peaks)
    print({"csv": as_csv, "table": as_table}[options.output](lines), end="")
    return 1 if any(line.latency_ms is None and line.name not in DENSE for line in lines) else 0


def lines_of(
    case: Case, implementations: Sequence[str], warmup: int, iters: int, peaks: Peaks
) -> Iterator[Line]:
    """A line for each implementation; the first is the baseline."""
    row = measure_case(case, implementations, warmup, iters)
    found = {entry.name: entry for entry in row.entries}
    baseline = found[NAMES[implementations[0]]].seconds
    for name in implementations:
        yield _line(case, name, found[NAMES[name]], baseline.median if baseline else None, peaks)


def _line(case: Case, name: str, entry: Entry, baseline: float | None, peaks: Peaks) -> Line:
    seconds = entry.seconds.median if entry.seconds else None
    sizes = (case.batch, case.heads, case.length, case.head_dim)
    flops = attention_flops(*sizes, causal=case.causal)
    nbytes = attention_bytes(*sizes, ITEM_BYTES[case.dtype], fused=NAMES[name] not in contestants.DENSE)
    tflops = flops / seconds / 1e12 if seconds else None
    bandwidth = nbytes / seconds / 1e12 if seconds else None
    return Line(
        name=name,
        batch_size=case.batch,
        seq_len=case.length,
        num_heads=case.heads,
        head_dim=case.head_dim,
        causal=case.causal,
        latency_ms=seconds * 1e3 if seconds else None,
        throughput_tflops=tflops,
        memory_bandwidth_tb=bandwidth,
        memory_utilization_pct=_percent(bandwidth, peaks.bandwidth_tb),
        compute_utilization_pct=_percent(tflops, peaks.tflops),
        vs_baseline_speedup=baseline / seconds if baseline and seconds else None,
    )


def _percent(rate: float | None, peak: float | None) -> float | None:
    return 100 * rate / peak if rate and peak else None


def as_csv(lines: Sequence[Line]) -> str:
    """With a header; an unknown number is an empty field."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Line)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(line) for line in lines)
    return text.getvalue()


def as_table(lines: Sequence[Line]) -> str:
    """In markdown, with three digits."""
    body = [[_cell(value) for value in asdict(line).values()] for line in lines]
    return table([field.name for field in fields(Line)], body) + "\n"


def _cell(value: float | str | None) -> str:
    if value is None:
        return "wrong result"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pdm bench flashtile functions",
        description=f"Measures causal attention in {DTYPE} on {BATCH} sequences, {HEADS} heads of\n"
        f"{HEAD_DIM}. The first implementation is the baseline. Shares are of the measured peaks of this\n"
        "machine. Every result is checked before it is timed; naive and sdpa (mx.fast) are timed once where\n"
        "they take more than a second.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seq-lengths", nargs="+", type=integer(1), default=[512, 1024, 2048, 4096], metavar="N",
        help="default: 512 1024 2048 4096",
    )  # fmt: skip
    parser.add_argument(
        "--implementations", nargs="+", choices=IMPLEMENTATIONS, default=IMPLEMENTATIONS, metavar="NAME",
        help=f"some of {', '.join(IMPLEMENTATIONS)} (default: all)",
    )  # fmt: skip
    parser.add_argument("--output", choices=["table", "csv"], default="table", help="default: table")
    parser.add_argument(
        "--warmup", type=integer(0), default=10, metavar="W",
        help="calls before the first sample, of what takes less than 0.1 s (default: 10)",
    )  # fmt: skip
    parser.add_argument("--iters", type=integer(1), default=100, metavar="I", help="samples (default: 100)")
    return parser
