"""Plots of benchmark records and training runs, from plain data such as the JSON of a benchmark.

A record is {"config": {"seq_lengths": [...], ...}, "results": {name: {"time_ms": [...], "memory_mb":
[...]}}}. The first name is the baseline; None stands for what was not measured.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import mlx.core as mx

from tiny_llm.checks.types import check_number, check_size, check_type
from tiny_llm.errors import ArgumentError

from .display import has_display, open_file
from .heatmap import draw_heatmap, weights_matrix
from .themes import THEMES, themed_figure

Record = Mapping[str, Any]
Series = dict[str, list[float]]
THEME_NAMES = {"light": "default", "dark": "dark"}
MARKERS = "osD^vPX*"


class Plot:
    """A figure with `save`, `show` and `close`; theme is light or dark."""

    figsize: tuple[float, float] = (8, 5)

    def __init__(
        self, theme: str = "light", figsize: tuple[float, float] | None = None, dpi: int = 100
    ) -> None:
        name = type(self).__name__
        if theme not in list(THEME_NAMES):
            raise ArgumentError(name, "theme", repr(theme), f"one of {', '.join(THEME_NAMES)}")
        check_size(name, "dpi", dpi)
        self._theme = THEMES[THEME_NAMES[theme]]
        self._size = figsize or self.figsize
        self.dpi = dpi
        self.figure: Any = None

    def save(self, path: str | Path) -> Path:
        """Write the figure; the ending of the name chooses the format: png, svg, pdf."""
        self._drawn("save").savefig(path, dpi=self.dpi)
        return Path(path)

    def show(self) -> Path:
        """Open the figure in the browser, and return the picture's path."""
        if not has_display():
            raise RuntimeError(f"{type(self).__name__}: show: there is no display: use save(path)")
        with tempfile.NamedTemporaryFile(prefix="tiny-llm-", suffix=".png", delete=False) as file:
            path = self.save(file.name)
        open_file(path)
        return path

    def close(self) -> None:
        """Free the figure."""
        self.figure = None

    def _drawn(self, operation: str) -> Any:
        if self.figure is None:
            raise RuntimeError(f"{type(self).__name__}: {operation}: call plot(...) first")
        return self.figure

    def _draw(self, draw: Callable[[Any], None]) -> Self:
        with themed_figure(self._theme, self._size, self.dpi) as figure:
            draw(figure)
        self.figure = figure
        return self


class MemoryScalingPlot(Plot):
    """Peak memory by sequence length, on two logarithmic axes."""

    def plot(self, record: Record) -> Self:
        """A line for each implementation, in MB of 1e6 bytes."""
        lengths, memory = _series("MemoryScalingPlot", record, "memory_mb")
        return self._draw(lambda figure: _lines(figure.subplots(), lengths, memory, "peak memory, MB"))


class PerformancePlot(Plot):
    """Time, throughput or speedup by sequence length."""

    def plot(self, record: Record, metric: str = "time") -> Self:
        """metric: "time" in ms, "throughput" in tokens per second, or "speedup" over the first."""
        name = "PerformancePlot"
        metrics = ("time", "throughput", "speedup")
        if metric not in metrics:
            raise ArgumentError(name, "metric", repr(metric), f"one of {', '.join(metrics)}")
        lengths, times = _series(name, record, "time_ms")
        label = {
            "time": "time, ms",
            "throughput": "tokens per second",
            "speedup": f"speedup over {next(iter(times))}",
        }[metric]
        batch = record["config"].get("batch_size", 1)
        values = {
            "time": times,
            "throughput": {
                key: [1e3 * batch * length / ms for length, ms in zip(lengths, row, strict=True)]
                for key, row in times.items()
            },
            "speedup": _over_first(times),
        }[metric]
        linear = metric == "speedup"
        return self._draw(lambda figure: _lines(figure.subplots(), lengths, values, label, linear=linear))


class AttentionHeatmap(Plot):
    """Weights of one head."""

    figsize = (8, 7)

    def plot(
        self,
        weights: mx.array | Sequence[Sequence[float]],
        *,
        tokens: Sequence[str] | None = None,
        title: str = "Attention weights",
        vmin: float | None = None,
        vmax: float | None = None,
        cmap: str | None = None,
    ) -> Self:
        """Weights [L, S]; the colours reach from vmin to vmax, by default the smallest and largest weight."""
        rows = weights_matrix("AttentionHeatmap", weights)
        for argument, limit in (("vmin", vmin), ("vmax", vmax)):
            if limit is not None:
                check_number("AttentionHeatmap", argument, limit)

        def draw(figure: Any) -> None:
            axes = figure.subplots()
            draw_heatmap(figure, axes, rows, self._theme, tokens=tokens, vmin=vmin, vmax=vmax, cmap=cmap)
            axes.set_title(title)

        return self._draw(draw)


class TrainingConvergencePlot(Plot):
    """Losses of training runs by step."""

    def plot(self, losses: Mapping[str, Sequence[float]], *, title: str = "Training loss") -> Self:
        """A line for each run, name -> losses."""
        name = "TrainingConvergencePlot"
        check_type(name, "losses", losses, Mapping, "a dictionary, name -> losses")
        if not losses or not all(losses.values()):
            raise ArgumentError(name, "losses", dict(losses), "at least one run with a loss")

        def draw(figure: Any) -> None:
            axes = figure.subplots()
            for run, values in losses.items():
                axes.plot(range(1, len(values) + 1), list(values), label=run)
            _dress(axes, "step", "loss")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.set_title(title)

        return self._draw(draw)


class BenchmarkDashboard(Plot):
    """Memory, time, speedup and reduction of memory, in four panels."""

    figsize = (12, 9)

    def plot(self, record: Record) -> Self:
        """All panels from one record."""
        lengths, times = _series("BenchmarkDashboard", record, "time_ms")
        _, memory = _series("BenchmarkDashboard", record, "memory_mb")
        first = next(iter(times))

        def draw(figure: Any) -> None:
            (top_left, top_right), (low_left, low_right) = figure.subplots(2, 2)
            _lines(top_left, lengths, memory, "peak memory, MB")
            _lines(top_right, lengths, times, "time, ms")
            _lines(low_left, lengths, _over_first(times), f"speedup over {first}", linear=True)
            _lines(low_right, lengths, _over_first(memory), f"memory of {first} / own", linear=True)
            for axes, title in (
                (top_left, "Memory"), (top_right, "Time"), (low_left, "Speedup"), (low_right, "Reduction"),
            ):  # fmt: skip
                axes.set_title(title)

        return self._draw(draw)


def _series(operation: str, record: Record, measure: str) -> tuple[list[int], Series]:
    """The sequence lengths, and for each implementation its measurements, NaN where there is none."""
    try:
        lengths = [int(length) for length in record["config"]["seq_lengths"]]
        results = {str(name): list(values[measure]) for name, values in record["results"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        expected = f"config.seq_lengths and results.NAME.{measure}"
        raise ArgumentError(operation, "record", f"no {error}", expected) from error
    for name, values in results.items():
        if len(values) > len(lengths):
            raise ArgumentError(
                operation, f"results.{name}.{measure}", len(values), f"{len(lengths)} numbers"
            )
        values += [None] * (len(lengths) - len(values))
    if not lengths or not results:
        raise ArgumentError(operation, "record", "no measurement", "at least one length and one result")
    return lengths, {
        name: [math.nan if value is None else float(value) for value in values]
        for name, values in results.items()
    }


def _over_first(series: Series) -> Series:
    """The first row divided by each row."""
    first = next(iter(series.values()))
    return {name: [base / own for base, own in zip(first, row, strict=True)] for name, row in series.items()}


def _lines(axes: Any, lengths: list[int], series: Series, label: str, *, linear: bool = False) -> None:
    for number, (name, values) in enumerate(series.items()):
        axes.plot(lengths, values, f"{MARKERS[number % len(MARKERS)]}-", label=name, markersize=5)
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.xaxis.minorticks_off()
    if not linear:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        axes.yaxis.set_minor_formatter(_two_and_five)
    _dress(axes, "sequence length", label)


def _two_and_five(y: float, _: int) -> str:
    """Labels between the powers of ten: an axis of less than a decade would have one number or none."""
    return f"{y:g}" if f"{y:e}"[0] in "25" else ""


def _dress(axes: Any, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True)
    axes.legend()
