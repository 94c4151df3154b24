"""The share of the measured peak as a bar chart: one SVG, no drawing library."""

from __future__ import annotations

from html import escape
from typing import Any

WIDTH, LABELS, RIGHT = 900, 320, 50
BAR, GAP, HEAD = 9, 8, 70
OURS_COLOUR, PEER_COLOUR, INK, RULE = "#0b6e8f", "#e0914a", "#222", "#ccc"


def shares(record: dict[str, Any]) -> str:
    """Ours and PyTorch against the peak, for every timed row at its largest thread count."""
    most = max(record["threads"])
    rows = [row for row in record["rows"] if row["threads"] == most and row["contestants"]]
    leading = dict.fromkeys(row["contestants"][0]["isa"] for row in rows)
    height = HEAD + len(rows) * (2 * BAR + GAP) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="12" role="img">',
        f"<title>Share of the measured peak, {most} threads, {escape(record['cpu'])}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(10, 18, f"Share of the measured peak, {most} threads, {record['cpu']}", size=14),
        _bar(10, 28, 12, OURS_COLOUR),
        _text(26, 37, f"ours ({', '.join(leading)})"),
        _bar(10, 41, 12, PEER_COLOUR),
        _text(26, 50, "PyTorch"),
    ]
    for percent in range(0, 101, 20):
        x = _x(percent / 100)
        parts.append(f'<path d="M{x:.1f} {HEAD - 4}V{height - 10}" stroke="{RULE}"/>')
        parts.append(_text(x, HEAD - 8, f"{percent} %", anchor="middle"))
    for number, row in enumerate(rows):
        parts += _row(row, HEAD + number * (2 * BAR + GAP))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _row(row: dict[str, Any], y: float) -> list[str]:
    first, *others = row["contestants"]
    peer = next((c for c in others if c["name"] == "PyTorch"), None)
    parts = [_text(LABELS - 8, y + BAR + 4, row["row"], anchor="end")]
    for contestant, colour, top in ((first, OURS_COLOUR, y), (peer, PEER_COLOUR, y + BAR)):
        share = contestant and contestant["share_of_peak"]
        if share:
            end = _x(min(share, 1.0))
            parts.append(_bar(LABELS, top, end - LABELS, colour))
            parts.append(_text(end + 4, top + BAR - 1, f"{share:.0%}", size=9))
    return parts


def _x(share: float) -> float:
    return LABELS + share * (WIDTH - LABELS - RIGHT)


def _bar(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    style = f'text-anchor="{anchor}" font-size="{size}" fill="{INK}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
