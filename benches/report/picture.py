"""The share of the measured peak as a bar chart: one SVG, no drawing library."""

from __future__ import annotations

from typing import Any

from tiny_llm.benchmark.svg import bar, document, rule, text

WIDTH, LABELS, RIGHT = 900, 320, 50
BAR, GAP, HEAD = 9, 8, 70
OURS_COLOUR, PEER_COLOUR = "#0b6e8f", "#e0914a"


def shares(record: dict[str, Any]) -> str:
    """Ours and PyTorch against the peak, for every timed row at its largest thread count."""
    most = max(record["threads"])
    rows = [row for row in record["rows"] if row["threads"] == most and row["contestants"]]
    leading = dict.fromkeys(row["contestants"][0]["isa"] for row in rows)
    height = HEAD + len(rows) * (2 * BAR + GAP) + 10
    title = f"Share of the measured peak, {most} threads, {record['cpu']}"
    parts = [
        text(10, 18, title, size=14),
        bar(10, 28, 12, BAR, OURS_COLOUR),
        text(26, 37, f"ours ({', '.join(leading)})"),
        bar(10, 41, 12, BAR, PEER_COLOUR),
        text(26, 50, "PyTorch"),
    ]
    for percent in range(0, 101, 20):
        x = _x(percent / 100)
        parts.append(rule(x, HEAD - 4, height - 10))
        parts.append(text(x, HEAD - 8, f"{percent} %", anchor="middle"))
    for number, row in enumerate(rows):
        parts += _row(row, HEAD + number * (2 * BAR + GAP))
    return document(WIDTH, height, title, parts)


def _row(row: dict[str, Any], y: float) -> list[str]:
    first, *others = row["contestants"]
    peer = next((c for c in others if c["name"] == "PyTorch"), None)
    parts = [text(LABELS - 8, y + BAR + 4, row["row"], anchor="end")]
    for contestant, colour, top in ((first, OURS_COLOUR, y), (peer, PEER_COLOUR, y + BAR)):
        share = contestant and contestant["share_of_peak"]
        if share:
            end = _x(min(share, 1.0))
            parts.append(bar(LABELS, top, end - LABELS, BAR, colour))
            parts.append(text(end + 4, top + BAR - 1, f"{share:.0%}", size=9))
    return parts


def _x(share: float) -> float:
    return LABELS + share * (WIDTH - LABELS - RIGHT)
