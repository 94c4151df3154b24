"""The pictures of a prompt's attention as PNG: what the interactive page shows, for one head."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from tiny_llm.loading.progress import Progress, silent

from .attention_weights import LayerAttention, entropy
from .page.data import step_size
from .visualizer import AttentionVisualizer


def prompt_pictures(
    layers: Sequence[LayerAttention],
    tokens: Sequence[str],
    *,
    layer: int = 0,
    head: int = 0,
    progress: Progress = silent,
) -> dict[str, bytes]:
    """Name -> PNG: weights of one head, entropy of all, tiles, and online softmax of the last row."""
    draw = AttentionVisualizer()
    chosen = layers[layer]
    step = step_size(len(tokens))
    means = mx.stack([entropy(each.weights).mean(axis=-1) for each in layers])
    title = f"Attention weights of layer {layer}, head {head}"
    pictures: dict[str, Callable[[], Any]] = {
        "weights": lambda: draw.plot_attention_heatmap(chosen.weights[head], title, tokens=tokens),
        "head_entropy": lambda: draw.plot_head_entropy(means),
        "block_access_pattern": lambda: draw.plot_block_access_pattern(len(tokens), step),
        "online_softmax_state": lambda: draw.plot_online_softmax_state(chosen.scores[head, -1], step),
    }
    found = {}
    for number, (name, plot) in enumerate(pictures.items()):
        progress("drawing the pictures", number, len(pictures))
        buffer = io.BytesIO()
        plot().savefig(buffer, format="png", dpi=draw.dpi)
        found[name] = buffer.getvalue()
    return found
