"""The rates of a record as a bar chart."""

from typing import Any

from .svg import bar, document, text

WIDTH, LABELS, RIGHT = 720, 180, 70
BAR, GAP, HEAD = 16, 6, 40
COLOURS = ("#0b6e8f", "#e0914a", "#8a8a8a")
PANELS = {
    "prefill_tokens_per_second": "prefill, tokens per second",
    "decode_tokens_per_second": "decoding, tokens per second",
}


def rates(record: dict[str, Any]) -> str:
    """Prefill and decoding, each on a scale of its own, with a bar for everybody."""
    contestants = record["contestants"]
    panel = 24 + len(contestants) * (BAR + GAP) + 10
    shapes = [text(10, 22, record["setting"], size=14)]
    for number, (key, title) in enumerate(PANELS.items()):
        shapes += _panel(contestants, key, title, HEAD + number * panel)
    return document(WIDTH, HEAD + len(PANELS) * panel, record["setting"], shapes)


def _panel(contestants: list[dict[str, Any]], key: str, title: str, top: float) -> list[str]:
    longest = max((each[key] or 0 for each in contestants), default=0) or 1
    shapes = [text(LABELS, top + 14, title)]
    for number, each in enumerate(contestants):
        y = top + 24 + number * (BAR + GAP)
        value = each[key] or 0
        width = value / longest * (WIDTH - LABELS - RIGHT)
        shapes += [
            text(LABELS - 8, y + BAR - 4, each["name"], anchor="end"),
            bar(LABELS, y, width, BAR, COLOURS[number % len(COLOURS)]),
            text(LABELS + width + 6, y + BAR - 4, f"{value:.1f}"),
        ]
    return shapes
