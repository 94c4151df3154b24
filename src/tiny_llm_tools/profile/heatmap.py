"""A heatmap of attention weights on axes of matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from tiny_llm.checks.arrays import check_floats
from tiny_llm.errors import ArgumentError

from .themes import Theme

MAX_LABELS = 48  # along an axis; of more tokens, only every second or third and so on has its label


def weights_matrix(operation: str, weights: mx.array | Sequence[Sequence[float]]) -> list[list[float]]:
    """Rows of numbers, from an array or nested lists."""
    given: Any = weights
    array = given if isinstance(given, mx.array) else mx.array(given)
    check_floats(operation, weights=array)
    if array.ndim != 2 or array.size == 0:
        raise ArgumentError(operation, "weights", array.shape, "(L, S), of one head")
    rows: Any = array.astype(mx.float32).tolist()
    return list(rows)


def draw_heatmap(
    figure: Any,
    axes: Any,
    rows: Sequence[Sequence[float]],
    theme: Theme,
    *,
    tokens: Sequence[str] | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | None = None,
    colorbar: bool = True,
    labels: tuple[str, str] = ("key", "query"),
) -> Any:
    """Draw the rows as an image and return it; `labels` are those of the columns and of the rows."""
    image = axes.imshow(rows, cmap=cmap or theme.colormap, vmin=vmin, vmax=vmax, interpolation="nearest")
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    if tokens is not None:
        for axis, count, options in (
            (axes.xaxis, len(rows[0]), {"rotation": 90}),
            (axes.yaxis, len(rows), {}),
        ):
            every = -(-count // MAX_LABELS)
            places = range(0, count, every)
            axis.set_ticks(
                list(places), [plain_text(tokens[place]) for place in places], fontsize=7, **options
            )
    if colorbar:
        figure.colorbar(image, ax=axes, shrink=0.8)
    return image


def plain_text(token: str) -> str:
    """A token as a label: spaces and line breaks visible, and "$" escaped, which starts a formula."""
    visible = token.replace(" ", "·").replace("\n", "\\n").replace("\t", "\\t")
    return visible.replace("$", r"\$")
