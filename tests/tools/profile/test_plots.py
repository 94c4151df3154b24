"""Plots of benchmark records: from plain data, without a display."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import ArgumentError
from tiny_llm_tools.profile import (
    AttentionHeatmap,
    BenchmarkDashboard,
    MemoryScalingPlot,
    PerformancePlot,
    TrainingConvergencePlot,
    display,
)

RECORD = json.loads("""{
  "config": {"seq_lengths": [256, 512, 1024], "batch_size": 2},
  "results": {
    "naive": {"time_ms": [1.0, 4.0, 16.0], "memory_mb": [10.0, 40.0, null]},
    "flash": {"time_ms": [2.0, 2.0, 4.0], "memory_mb": [5.0, 10.0, 20.0]}
  }
}""")


def lines(figure: Any, panel: int = 0) -> dict[str, list[float]]:
    return {line.get_label(): list(line.get_ydata()) for line in figure.axes[panel].lines}


def test_memory_has_a_line_for_each_implementation_and_gaps_where_nothing_was_measured() -> None:
    found = lines(MemoryScalingPlot().plot(RECORD).figure)
    assert found["flash"] == [5, 10, 20]
    assert found["naive"][:2] == [10, 40]
    assert np.isnan(found["naive"][2])


@pytest.mark.parametrize(
    ("metric", "naive", "flash"),
    [
        ("time", [1, 4, 16], [2, 2, 4]),
        ("throughput", [512e3, 256e3, 128e3], [256e3, 512e3, 512e3]),
        ("speedup", [1, 1, 1], [0.5, 2, 4]),
    ],
)
def test_performance_in_each_metric(metric: str, naive: list[float], flash: list[float]) -> None:
    found = lines(PerformancePlot().plot(RECORD, metric).figure)
    assert found == {"naive": naive, "flash": flash}


def test_the_dashboard_has_four_panels() -> None:
    figure = BenchmarkDashboard("dark").plot(RECORD).figure
    assert [axes.get_title() for axes in figure.axes] == ["Memory", "Time", "Speedup", "Reduction"]
    assert lines(figure, 2)["flash"] == [0.5, 2, 4]
    assert lines(figure, 3)["flash"][:2] == [2, 4]


def test_the_limits_of_a_heatmap_are_honoured_also_zero() -> None:
    weights = mx.array([[0.2, 0.4], [0.3, 0.7]])
    image = AttentionHeatmap().plot(weights, vmin=0, vmax=1).figure.axes[0].images[0]
    assert image.get_clim() == (0, 1)
    free = AttentionHeatmap().plot(weights).figure.axes[0].images[0]
    assert free.get_clim() == pytest.approx((0.2, 0.7))


def test_losses_of_training_runs() -> None:
    found = lines(TrainingConvergencePlot().plot({"naive": [3.0, 2.0], "flash": [3.0, 1.5, 1.0]}).figure)
    assert found == {"naive": [3, 2], "flash": [3, 1.5, 1]}


def test_a_plot_is_saved_shown_and_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(mpl.rcParams)
    plot = MemoryScalingPlot("dark", dpi=40).plot(RECORD)
    assert plot.save(tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in plot.save(tmp_path / "memory.svg").read_bytes()
    assert dict(mpl.rcParams) == before
    opened: list[str] = []
    monkeypatch.setattr(display.webbrowser, "open", lambda uri: opened.append(uri) or True)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("DISPLAY", ":0")
    shown = plot.show()
    assert opened == [shown.as_uri()]
    shown.unlink()
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with pytest.raises(RuntimeError, match=r"MemoryScalingPlot: show: there is no display: use save\(path\)"):
        plot.show()
    plot.close()
    with pytest.raises(RuntimeError, match=r"MemoryScalingPlot: save: call plot\(...\) first"):
        plot.save(tmp_path / "again.png")


def test_wrong_data_is_refused() -> None:
    with pytest.raises(ArgumentError, match="theme: got 'sepia', expected one of light, dark"):
        PerformancePlot("sepia")
    with pytest.raises(ArgumentError, match="metric: got 'joy', expected one of time, throughput, speedup"):
        PerformancePlot().plot(RECORD, "joy")
    with pytest.raises(ArgumentError, match=r"record: got no 'config', expected config.seq_lengths and"):
        MemoryScalingPlot().plot({})
    with pytest.raises(ArgumentError, match=r"record: got no 'memory_mb', expected"):
        MemoryScalingPlot().plot({"config": {"seq_lengths": [1]}, "results": {"a": {"time_ms": [1]}}})
    with pytest.raises(ArgumentError, match=r"results\.a\.memory_mb: got 2, expected 1 numbers"):
        MemoryScalingPlot().plot({"config": {"seq_lengths": [1]}, "results": {"a": {"memory_mb": [1, 2]}}})
    with pytest.raises(ArgumentError, match="record: got no measurement, expected at least one length"):
        MemoryScalingPlot().plot({"config": {"seq_lengths": []}, "results": {}})
    with pytest.raises(ArgumentError, match=r"losses: got .*, expected at least one run with a loss"):
        TrainingConvergencePlot().plot({"a": []})
