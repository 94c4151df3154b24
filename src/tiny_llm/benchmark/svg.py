"""The few shapes of a bar chart, as SVG."""

from collections.abc import Iterable
from html import escape

INK, RULE = "#222", "#ccc"


def document(width: float, height: float, title: str, shapes: Iterable[str]) -> str:
    """A picture on white ground; `title` is what a screen reader says."""
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    return "\n".join([*head, *shapes, "</svg>"]) + "\n"


def bar(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" fill="{colour}"/>'


def rule(x: float, top: float, bottom: float) -> str:
    """A vertical line."""
    return f'<path d="M{x:.1f} {top}V{bottom}" stroke="{RULE}"/>'


def text(x: float, y: float, content: str, *, anchor: str = "start", size: int = 12) -> str:
    style = f'text-anchor="{anchor}" font-size="{size}" fill="{INK}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(content)}</text>'
