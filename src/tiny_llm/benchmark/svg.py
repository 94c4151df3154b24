"""The few shapes of bar charts and plots, as SVG."""

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


def line(points: Iterable[tuple[float, float]], colour: str, *, dashed: bool = False) -> str:
    """From point to point."""
    path = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.5"{dashes}/>'


def dot(x: float, y: float, colour: str, title: str, *, filled: bool = True) -> str:
    """A point of a plot; a browser shows the title under the pointer."""
    fill = colour if filled else "white"
    style = f'r="4" fill="{fill}" stroke="{colour}" stroke-width="1.5"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" {style}><title>{escape(title)}</title></circle>'


def text(x: float, y: float, content: str, *, anchor: str = "start", size: int = 12) -> str:
    style = f'text-anchor="{anchor}" font-size="{size}" fill="{INK}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(content)}</text>'
