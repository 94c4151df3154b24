"""Pictures of attention: weights, tiles, memory, and the states of the online softmax."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tiny_llm.checks.types import check_size, check_type
from tiny_llm.errors import ArgumentError
from tiny_llm.ops.arguments import Window

from .heatmap import draw_heatmap, weights_matrix
from .memory import MB
from .online_softmax import online_softmax
from .themes import theme_named, themed_figure
from .tiles import block_pattern

TILE_NAMES = ("skipped", "computed", "computed with a mask")
MEMORY_LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
EXAMPLE_SCORES = (0.4, -1.0, 0.2, 1.1, 2.3, -0.5, 0.9, 0.1, 1.7, 3.0, -2.0, 0.6, 0.3, 1.2, -0.7, 0.8)


class AttentionVisualizer:
    """Draws figures of matplotlib, which need no display; `style` is default, dark or paper."""

    def __init__(self, style: str = "default", figsize: tuple[float, float] = (10, 8), dpi: int = 100):
        self._theme = theme_named("AttentionVisualizer", "style", style)
        check_size("AttentionVisualizer", "dpi", dpi)
        self.style, self.figsize, self.dpi = style, figsize, dpi

    def plot_attention_heatmap(
        self,
        weights: mx.array | Sequence[Sequence[float]],
        title: str = "Attention weights",
        show_colorbar: bool = True,
        highlight_causal: bool = False,
        highlight_blocks: int | None = None,
        cmap: str | None = None,
        *,
        tokens: Sequence[str] | None = None,
    ) -> Any:
        """A figure of weights [L, S]: of one head, queries down, keys to the right.

        `highlight_causal` marks the diagonal, `highlight_blocks` the edges of blocks of that size;
        `tokens` are labels of both axes.
        """
        name = "plot_attention_heatmap"
        rows = weights_matrix(name, weights)
        if tokens is not None and len(tokens) < max(len(rows), len(rows[0])):
            raise ArgumentError(name, "tokens", f"{len(tokens)} texts", "one for each row and column")
        if highlight_blocks is not None:
            check_size(name, "highlight_blocks", highlight_blocks)
        with self._figure() as figure:
            axes = figure.subplots()
            draw_heatmap(
                figure, axes, rows, self._theme, tokens=tokens, vmin=0, cmap=cmap, colorbar=show_colorbar
            )
            axes.set_title(title)
            if highlight_causal:
                offset = len(rows[0]) - len(rows)
                places = [(row, side) for row in range(len(rows)) for side in (-0.5, 0.5)]
                limits = [min(row + offset, len(rows[0]) - 1) + 0.5 for row, _ in places]
                axes.plot(limits, [row + side for row, side in places], color=self._theme.tiles[2])
            if highlight_blocks is not None:
                for draw, count in ((axes.axhline, len(rows)), (axes.axvline, len(rows[0]))):
                    for edge in range(highlight_blocks, count, highlight_blocks):
                        draw(edge - 0.5, color=self._theme.tiles[1], linewidth=0.8)
            return figure

    def plot_head_entropy(self, entropies: mx.array | Sequence[Sequence[float]]) -> Any:
        """A figure of the mean entropy of each head, in bits: [layers, heads]."""
        rows = weights_matrix("plot_head_entropy", entropies)
        with self._figure() as figure:
            axes = figure.subplots()
            draw_heatmap(figure, axes, rows, self._theme, labels=("head", "layer"))
            axes.set_xticks(range(0, len(rows[0]), 1 + len(rows[0]) // 32))
            axes.set_yticks(range(0, len(rows), 1 + len(rows) // 32))
            axes.set_title("Mean entropy of the rows of each head, in bits")
            return figure

    def plot_block_access_pattern(
        self, seq_len: int, block_size: int = 64, causal: bool = True, *, window: Window = None
    ) -> Any:
        """A figure of the tiles: 0 skipped, 1 computed, 2 computed with a mask."""
        pattern = block_pattern(seq_len, block_size, causal, window=window)
        if not pattern.total:
            raise ArgumentError("plot_block_access_pattern", "seq_len", seq_len, "at least 1")
        with self._figure() as figure:
            from matplotlib.colors import ListedColormap
            from matplotlib.patches import Patch

            axes = figure.subplots()
            axes.imshow(pattern.tiles, cmap=ListedColormap(self._theme.tiles), vmin=0, vmax=2)
            count = len(pattern.tiles)
            if count <= 64:
                axes.set_xticks([place - 0.5 for place in range(1, count)], minor=True)
                axes.set_yticks([place - 0.5 for place in range(1, count)], minor=True)
                axes.grid(which="minor", color=self._theme.settings["axes.facecolor"], linewidth=1)
                axes.tick_params(which="minor", length=0)
            axes.set_xlabel(f"block of {block_size} keys")
            axes.set_ylabel(f"block of {block_size} queries")
            axes.set_title(
                f"{seq_len} tokens: {pattern.computed} of {pattern.total} tiles are computed, "
                f"{pattern.savings_percent:.1f} % are skipped"
            )
            patches = [
                Patch(facecolor=color, edgecolor="gray", label=label)
                for color, label in zip(self._theme.tiles, TILE_NAMES, strict=True)
            ]
            figure.legend(handles=patches, loc="outside lower center", ncols=3, frameon=False)
            return figure

    def plot_memory_comparison(
        self,
        seq_lengths: Sequence[int] = MEMORY_LENGTHS,
        *,
        batch_size: int = 1,
        num_heads: int = 8,
        head_dim: int = 64,
    ) -> Any:
        """A figure of what attention keeps in float32: scores and output, or output and log-sum-exp."""
        name = "plot_memory_comparison"
        if not seq_lengths:
            raise ArgumentError(name, "seq_lengths", "none", "at least one")
        for length in seq_lengths:
            check_size(name, "seq_lengths", length)
        rows = batch_size * num_heads
        naive = [4 * rows * (n * n + n * head_dim) / MB for n in seq_lengths]
        flash = [4 * rows * (n * head_dim + n) / MB for n in seq_lengths]
        with self._figure() as figure:
            axes = figure.subplots()
            axes.plot(seq_lengths, naive, "o-", label="score matrix and output", color=self._theme.tiles[2])
            axes.plot(seq_lengths, flash, "s-", label="output and log-sum-exp", color=self._theme.tiles[1])
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xticks(list(seq_lengths), [str(length) for length in seq_lengths])
            axes.xaxis.minorticks_off()
            axes.set_xlabel("tokens")
            axes.set_ylabel("MB (1e6 bytes)")
            axes.set_title(
                f"Memory of attention, float32, batch {batch_size}, {num_heads} heads of {head_dim}: "
                f"{naive[-1] / flash[-1]:.0f} times less at {seq_lengths[-1]} tokens"
            )
            axes.grid(True)
            axes.legend()
            return figure

    def plot_online_softmax_state(
        self, scores: mx.array | Sequence[float] = EXAMPLE_SCORES, block_size: int = 4
    ) -> Any:
        """A figure of one row of scores, and of m, l and alpha after each tile of `block_size` keys."""
        name = "plot_online_softmax_state"
        array = scores if isinstance(scores, mx.array) else mx.array(list(scores), dtype=mx.float32)
        if array.ndim != 1 or array.size == 0:
            raise ArgumentError(name, "scores", array.shape, "(S,), of one row")
        states = online_softmax(array.astype(mx.float32), block_size)
        numbers: list[Any] = array.tolist()  # type: ignore[assignment]
        steps = list(range(states.tiles + 1))
        with self._figure() as figure:
            scored, largest, total, factor = figure.subplots(4, 1)
            finite = [score if abs(score) < float("inf") else 0.0 for score in numbers]
            colors = [self._theme.tiles[1 + (key // block_size) % 2] for key in range(len(numbers))]
            scored.bar(range(len(numbers)), finite, color=colors)
            scored.set_xlabel("key; the colour changes with the tile")
            scored.set_ylabel("score")
            for axes, label, values in (
                (largest, "m", states.m),
                (total, "l", states.l),
                (factor, "α", states.alpha),
            ):
                shown: list[Any] = values.tolist()  # type: ignore[assignment]
                start = 1 if axes is factor else 0  # nothing was rescaled before the first tile
                axes.plot(steps[start:], shown[start:], "o-", color=self._theme.tiles[1])
                axes.set_ylabel(label)
                axes.set_xlim(-0.3, steps[-1] + 0.3)
                axes.set_xticks(steps)
                axes.grid(True)
            largest.set_title(f"m grows to {states.m[-1].item():.4g}", loc="left", fontsize="medium")
            total.set_title(f"l ends at {states.l[-1].item():.4g}", loc="left", fontsize="medium")
            factor.set_title("α rescales l and O′ when m grows", loc="left", fontsize="medium")
            factor.set_ylim(-0.05, 1.1)
            factor.set_xlabel("tiles read")
            figure.suptitle("Online softmax of one row")
            return figure

    def save_all_visualizations(
        self, output_dir: str | Path, seq_len: int = 512, block_size: int = 64
    ) -> dict[str, Path]:
        """Write the three pictures that need no model as PNG; the folder is made. Name -> path."""
        check_type("save_all_visualizations", "output_dir", output_dir, str | Path, "a path")
        figures = {
            "block_access_pattern": self.plot_block_access_pattern(seq_len, block_size),
            "memory_comparison": self.plot_memory_comparison(),
            "online_softmax_state": self.plot_online_softmax_state(),
        }
        folder = Path(output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        paths = {name: folder / f"{name}.png" for name in figures}
        for name, figure in figures.items():
            figure.savefig(paths[name], dpi=self.dpi)
        return paths

    def _figure(self) -> Any:
        return themed_figure(self._theme, self.figsize, self.dpi)
