"""Figures of attention: right data in them, no display, and no settings left behind."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import ArgumentError
from tiny_llm_tools.benchmark.pictures import NoPlottingLibrary
from tiny_llm_tools.profile import AttentionVisualizer, block_pattern
from tiny_llm_tools.profile.heatmap import plain_text
from tiny_llm_tools.profile.themes import THEMES

from ...support.processes.child import run_python

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def draw() -> AttentionVisualizer:
    return AttentionVisualizer(figsize=(4, 3), dpi=50)


def image_of(figure: Any) -> np.ndarray:
    return np.asarray(figure.axes[0].images[0].get_array())


def test_the_heatmap_has_the_weights_and_a_scale_from_zero(draw: AttentionVisualizer) -> None:
    weights = mx.softmax(mx.random.normal((5, 7)), axis=-1)
    figure = draw.plot_attention_heatmap(weights, "a title", tokens=list("abcdefg"))
    np.testing.assert_allclose(image_of(figure), np.array(weights))
    axes = figure.axes[0]
    assert axes.get_title() == "a title"
    assert axes.images[0].get_clim()[0] == 0
    assert [label.get_text() for label in axes.get_xticklabels()] == list("abcdefg")
    assert [label.get_text() for label in axes.get_yticklabels()] == list("abcde")
    assert len(figure.axes) == 2  # the colour bar
    assert len(draw.plot_attention_heatmap(weights.tolist(), show_colorbar=False).axes) == 1


def test_the_diagonal_and_blocks_are_marked(draw: AttentionVisualizer) -> None:
    plain = draw.plot_attention_heatmap(mx.ones((6, 8)))
    assert list(plain.axes[0].lines) == []
    marked = draw.plot_attention_heatmap(mx.ones((6, 8)), highlight_causal=True)
    (line,) = marked.axes[0].lines
    # Row 0 sees keys 0 to 2: the edge is right of key 2, and at the last row it is the end of the keys.
    assert (line.get_xdata()[0], line.get_ydata()[0]) == (2.5, -0.5)
    assert (line.get_xdata()[-1], line.get_ydata()[-1]) == (7.5, 5.5)
    blocks = draw.plot_attention_heatmap(mx.ones((6, 8)), highlight_blocks=3)
    assert len(blocks.axes[0].lines) == 1 + 2  # after row 3, after keys 3 and 6


def test_the_pattern_is_that_of_the_tiles(draw: AttentionVisualizer) -> None:
    for options in ({}, {"window": 100}, {"causal": False}):
        figure = draw.plot_block_access_pattern(512, 64, **options)
        expected = block_pattern(512, 64, options.get("causal", True), window=options.get("window"))
        np.testing.assert_array_equal(image_of(figure), np.array(expected.tiles))
        assert f"{expected.computed} of 64 tiles" in figure.axes[0].get_title()
    assert np.count_nonzero(image_of(draw.plot_block_access_pattern(512))) == 36


def test_the_memory_of_tiles_is_output_and_log_sum_exp(draw: AttentionVisualizer) -> None:
    figure = draw.plot_memory_comparison([1024, 2048], batch_size=2, num_heads=8, head_dim=64)
    naive, flash = (line.get_ydata() for line in figure.axes[0].lines)
    assert flash[0] == pytest.approx(2 * 8 * 1024 * (64 + 1) * 4 / 1e6)
    assert naive[1] == pytest.approx(2 * 8 * (2048**2 + 2048 * 64) * 4 / 1e6)


def test_the_states_of_a_row_end_at_its_maximum_and_sum(draw: AttentionVisualizer) -> None:
    scores = [-np.inf] * 4 + [1.0, 3.0, -2.0, 0.5, 2.0]
    figure = draw.plot_online_softmax_state(scores, block_size=4)
    _, largest, total, factor = figure.axes
    assert largest.lines[0].get_ydata()[-1] == 3
    expected = np.exp(np.array(scores[4:]) - 3).sum()
    assert total.lines[0].get_ydata()[-1] == pytest.approx(expected, rel=1e-5)
    assert list(total.lines[0].get_ydata())[:2] == [0, 0]  # nothing is visible in the first tile
    np.testing.assert_allclose(factor.lines[0].get_ydata(), [0, 0, 1])


def test_the_entropy_of_heads_is_a_table_of_layers(draw: AttentionVisualizer) -> None:
    figure = draw.plot_head_entropy(mx.array([[0.5, 1.0, 2.0], [0.1, 0.2, 0.3]]))
    assert image_of(figure).shape == (2, 3)
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("head", "layer")


@pytest.mark.parametrize("style", THEMES)
def test_three_pictures_are_saved_and_no_setting_is_left(style: str, tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    draw = AttentionVisualizer(style, figsize=(4, 3), dpi=40)
    paths = draw.save_all_visualizations(tmp_path / "new" / "folder", seq_len=128, block_size=32)
    assert list(paths) == ["block_access_pattern", "memory_comparison", "online_softmax_state"]
    for path in paths.values():
        assert path.read_bytes().startswith(PNG)
    assert dict(mpl.rcParams) == before


def test_styles_differ_and_a_figure_keeps_its_own(draw: AttentionVisualizer) -> None:
    dark = AttentionVisualizer("dark").plot_memory_comparison([64])
    light = draw.plot_memory_comparison([64])
    assert sum(dark.get_facecolor()[:3]) < 0.5
    assert sum(light.get_facecolor()[:3]) == 3


def test_matplotlib_is_imported_to_draw_and_never_its_windows() -> None:
    program = (
        "import sys, tiny_llm_tools.profile, tiny_llm_tools.cli.bench;"
        "assert 'matplotlib' not in sys.modules, 'at import';"
        "tiny_llm_tools.profile.AttentionVisualizer().plot_block_access_pattern(64);"
        "assert 'matplotlib.pyplot' not in sys.modules, 'pyplot'"
    )
    result = run_python("-c", program)
    assert (result.returncode, result.stderr) == (0, "")


def test_without_matplotlib_the_error_has_the_command(
    draw: AttentionVisualizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(NoPlottingLibrary, match=r"pictures need matplotlib: pip install 'tiny-llm\[tools\]'"):
        draw.plot_block_access_pattern(64)


def test_the_text_of_a_token_is_no_formula() -> None:
    assert plain_text(" a\n$x^$") == "·a\\n\\$x^\\$"


def test_wrong_arguments_are_refused(draw: AttentionVisualizer) -> None:
    with pytest.raises(ArgumentError, match="style: got 'neon', expected one of default, dark, paper"):
        AttentionVisualizer("neon")
    with pytest.raises(ArgumentError, match=r"weights: got \(2, 2, 2\), expected \(L, S\), of one head"):
        draw.plot_attention_heatmap(mx.ones((2, 2, 2)))
    with pytest.raises(ArgumentError, match="tokens: got 1 texts, expected one for each row and column"):
        draw.plot_attention_heatmap(mx.ones((2, 2)), tokens=["a"])
    with pytest.raises(ArgumentError, match="seq_len: got 0, expected at least 1"):
        draw.plot_block_access_pattern(0)
    with pytest.raises(ArgumentError, match="seq_lengths: got none, expected at least one"):
        draw.plot_memory_comparison([])
    with pytest.raises(ArgumentError, match=r"scores: got \(2, 2\), expected \(S,\), of one row"):
        draw.plot_online_softmax_state(mx.ones((2, 2)))
