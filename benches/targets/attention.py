"""What each row of the attention benchmark is expected to reach. Targets are ratios within one run."""

from __future__ import annotations

from collections.abc import Iterator

from benches.contestants.attention import GROUPED, MX_FAST, OURS, TORCH
from benches.harness.ceilings import EMPTY_CALL
from benches.harness.row import Row, Verdict, share

TARGET_THREADS = 2  # the targets are stated for two cores
OURS_WITHOUT_WINDOW = "ours, no window"

SHORT_LAG_SECONDS = 40e-6  # MLX's own evaluation of a graph costs about 25 µs of this
DECODE_SHARE = 0.7  # of the roofline
WINDOW_SLACK = 1.3
EXTRA_BYTES = 4 * 2**20


def judge(row: Row) -> Iterator[Verdict]:
    """The targets of one row against what was measured."""
    if row.case.group == "memory":
        yield from _memory(row)
    elif row.threads == TARGET_THREADS:
        match row.case.group:
            case "f32":
                yield _speedup(row, TORCH, 1.2 if row.case.causal else 1.05)
                if row.case.L >= 4096:
                    yield share(row.subject(), "share of peak", 0.80 if row.case.D == 128 else 0.72)
            case "bf16":
                yield _speedup(row, TORCH, 1.5)
            case "short":
                yield _speedup(row, MX_FAST, 1.0)
                yield _speedup(row, GROUPED, 1.0)
                yield _behind_pytorch(row)
            case "decode":
                yield _speedup(row, TORCH, 5.0)
                yield _time("time against the roofline", decode_bound(row), row.seconds(OURS))
            case "window":
                yield _time("time against the windowless one", window_bound(row), row.seconds(OURS))
            case "avx2":
                yield share(row.subject(), "share of peak", 0.70)


def decode_bound(row: Row) -> float | None:
    """One empty call and max(bytes / bandwidth, flops / peak) / 0.7."""
    subject = row.subject()
    if subject is None or EMPTY_CALL not in row.ceilings:
        return None
    return row.ceilings[EMPTY_CALL].median + subject.floor / DECODE_SHARE


def window_bound(row: Row) -> float | None:
    """The windowless time, scaled by the share of tiles that the window leaves, with some slack."""
    full = row.seconds(OURS_WITHOUT_WINDOW)
    if full is None or row.tiles is None:
        return None
    visited, total = row.tiles
    return WINDOW_SLACK * visited / total * full


def _speedup(row: Row, peer: str, limit: float) -> Verdict:
    ours, theirs = row.seconds(OURS), row.seconds(peer)
    return Verdict(f"speed over {peer}", ">=", limit, theirs / ours if ours and theirs else None, "x")


def _behind_pytorch(row: Row) -> Verdict:
    ours, theirs = row.seconds(OURS), row.seconds(TORCH)
    lag = ours - theirs if ours and theirs else None
    return Verdict("time behind PyTorch", "<=", SHORT_LAG_SECONDS, lag, "s")


def _time(what: str, limit: float | None, seconds: float | None) -> Verdict:
    return Verdict(what, "<=", limit, seconds, "s")


def _memory(row: Row) -> Iterator[Verdict]:
    limit = row.case.output_bytes + row.case.lse_bytes + EXTRA_BYTES
    for what, extra in row.extra_bytes.items():
        yield Verdict(f"extra memory by {what}", "<=", limit, extra, "B")
