"""Targets of `pdm bench attention`."""

from __future__ import annotations

from collections.abc import Iterator

from benches.cases.attention import Case
from benches.harness.ceilings import EMPTY_CALL
from benches.harness.row import Row, Verdict, share, speedup
from benches.names import GROUPED, MX_FAST, NO_WINDOW, PYTORCH, TINY_LLM

TARGET_THREADS = 2  # targets are defined for two cores

SHORT_LAG_SECONDS = 40e-6  # about 25 µs of this is MLX's evaluation of a graph
DECODE_SHARE = 0.7  # of the roofline
WINDOW_SLACK = 1.3
EXTRA_BYTES = 4 * 2**20


def judge(case: Case, row: Row) -> Iterator[Verdict]:
    if case.group == "memory":
        yield from _memory(case, row)
    elif row.threads == TARGET_THREADS:
        match case.group:
            case "f32":
                yield speedup(row, PYTORCH, 1.2 if case.causal else 1.05)
                if case.L >= 4096:
                    yield share(row.subject(), "share of peak", 0.80 if case.D == 128 else 0.72)
            case "bf16":
                yield speedup(row, PYTORCH, 1.5)
            case "short":
                yield speedup(row, MX_FAST, 1.0)
                yield speedup(row, GROUPED, 1.0)
                yield _lag(row)
            case "decode":
                yield speedup(row, PYTORCH, 5.0)
                yield _time("time against the roofline", decode_bound(row), row.seconds(TINY_LLM))
            case "window":
                yield _time("time against the windowless one", window_bound(row), row.seconds(TINY_LLM))
            case "avx2":
                yield share(row.subject(), "share of peak", 0.70)


def decode_bound(row: Row) -> float | None:
    """Seconds of an empty call and max(bytes / bandwidth, flops / peak) / 0.7."""
    subject = row.subject()
    if subject is None or EMPTY_CALL not in row.ceilings:
        return None
    return row.ceilings[EMPTY_CALL].median + subject.floor / DECODE_SHARE


def window_bound(row: Row) -> float | None:
    """Seconds without a window, times the share of tiles that the window visits, times the slack."""
    full = row.seconds(NO_WINDOW)
    if full is None or row.details["tiles"] is None:
        return None
    visited, total = row.details["tiles"]
    return float(WINDOW_SLACK * visited / total * full)


def _lag(row: Row) -> Verdict:
    own, other = row.seconds(TINY_LLM), row.seconds(PYTORCH)
    lag = own - other if own and other else None
    return Verdict("time behind PyTorch", "<=", SHORT_LAG_SECONDS, lag, "s")


def _time(what: str, limit: float | None, seconds: float | None) -> Verdict:
    return Verdict(what, "<=", limit, seconds, "s")


def _memory(case: Case, row: Row) -> Iterator[Verdict]:
    limit = case.output_bytes + case.lse_bytes + EXTRA_BYTES
    for what, extra in row.details["extra_bytes"].items():
        yield Verdict(f"extra memory by {what}", "<=", limit, extra, "B")
