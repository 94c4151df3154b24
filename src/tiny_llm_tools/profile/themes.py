"""Figures of matplotlib without a display, in themes that leave its global settings as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tiny_llm.errors import ArgumentError

from ..benchmark.pictures import check_plotting


@dataclass(frozen=True, slots=True)
class Theme:
    """Settings of matplotlib, the colour map of weights, and the colours of tiles by kind."""

    settings: Any  # a dictionary of rcParams
    colormap: str
    tiles: tuple[str, str, str]


def _settings(ground: str, text: str, grid: str, **more: Any) -> dict[str, Any]:
    return {
        "figure.facecolor": ground,
        "axes.facecolor": ground,
        "savefig.facecolor": ground,
        "text.color": text,
        "axes.labelcolor": text,
        "axes.edgecolor": text,
        "axes.titlecolor": text,
        "xtick.color": text,
        "ytick.color": text,
        "grid.color": grid,
        "legend.facecolor": ground,
        "legend.edgecolor": grid,
        "font.family": "sans-serif",
        "font.size": 10,
        **more,
    }


THEMES = {
    "default": Theme(_settings("#ffffff", "#1b1f26", "#d4d8df"), "Blues", ("#eceef2", "#4a90d9", "#d9822b")),
    "dark": Theme(_settings("#12151a", "#e8ebef", "#353d48"), "magma", ("#262c35", "#5a9fe6", "#f0a350")),
    "paper": Theme(
        _settings("#ffffff", "#000000", "#cccccc", **{"font.family": "serif", "font.size": 9}),
        "Greys",
        ("#f2f2f2", "#9a9a9a", "#3a3a3a"),
    ),
}


def theme_named(operation: str, argument: str, name: str) -> Theme:
    """One of `THEMES`."""
    if name not in list(THEMES):
        raise ArgumentError(operation, argument, repr(name), f"one of {', '.join(THEMES)}")
    return THEMES[name]


@contextmanager
def themed_figure(theme: Theme, figsize: tuple[float, float], dpi: int) -> Iterator[Any]:
    """An empty figure, in inches, whose parts are made with the settings of the theme.

    It is no figure of pyplot: it needs no display, is in no list of open windows, and is freed like any
    object.
    """
    check_plotting()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(theme.settings):
        yield Figure(figsize=figsize, dpi=dpi, layout="constrained")
