"""Pictures of records as SVG, drawn by matplotlib, which the extra `tools` installs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PANELS = {
    "prefill_tokens_per_second": "prefill, tokens per second",
    "decode_tokens_per_second": "decode, tokens per second",
}
# Equal data gives equal bytes: fixed ids instead of random ones. Text stays text, for search and screen
# readers.
SVG_OPTIONS: Any = {
    "svg.hashsalt": "tiny-llm",
    "svg.fonttype": "none",
    "font.size": 9,
    "font.family": "sans-serif",
}
INSTALL = "pip install 'tiny-llm[tools]'"


class NoPlottingLibrary(RuntimeError):
    """matplotlib is not installed; the text says how to install it."""


def check_plotting() -> None:
    """Raise NoPlottingLibrary before a measurement whose picture could not be drawn."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise NoPlottingLibrary(f"pictures need matplotlib: {INSTALL}") from error


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Any]:
    """An empty figure, in inches, drawn with the options of `svg_text`."""
    check_plotting()
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with rc_context(SVG_OPTIONS):
        # The margin is for viewers with a wider font.
        yield Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.15))


def svg_text(figure: Any, title: str) -> str:
    """The figure as SVG, without a date; `title` is for screen readers."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Title": title, "Creator": None})
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def rates_picture(record: dict[str, Any]) -> str:
    """Bars of prefill and decode rates, a panel with its own scale each."""
    backends = record["contestants"]
    names = [each["name"] for each in backends]
    with new_figure(7.5, 1.2 + 0.6 * len(backends)) as figure:
        figure.suptitle(record["setting"])
        for axes, (key, title) in zip(figure.subplots(len(PANELS), 1), PANELS.items(), strict=True):
            rates = [each[key] for each in backends]
            bars = axes.barh(names, [rate or 0.0 for rate in rates], color="C0")
            axes.bar_label(bars, ["-" if rate is None else f"{rate:.1f}" for rate in rates], padding=3)
            axes.set_title(title, loc="left", fontsize=9)
            axes.invert_yaxis()
            axes.margins(x=0.12)
            axes.spines[["top", "right"]].set_visible(False)
        return svg_text(figure, record["setting"])
