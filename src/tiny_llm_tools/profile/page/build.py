"""The page as text: the template with style, scripts and data in the places of their names."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tiny_llm.checks.types import check_size
from tiny_llm.errors import ArgumentError
from tiny_llm.loading.progress import Progress, silent

from ..attention_weights import LayerAttention
from .data import most_tokens, page_data

FOLDER = Path(__file__).parent
SCRIPTS = ("data", "colors", "axes", "picker", "heatmap", "pattern", "stepper", "start")


def attention_page(
    layers: Sequence[LayerAttention],
    tokens: Sequence[str],
    facts: Mapping[str, Any],
    *,
    layer: int = 0,
    head: int = 0,
    progress: Progress = silent,
) -> str:
    """The page for the recorded attention of a prompt; `tokens` has the text of each token.

    `facts` has "model" and "prompt", and may have more, which the page lists. `layer` and `head` are
    shown first.
    """
    name = "attention_page"
    if not layers:
        raise ArgumentError(name, "layers", "none", "at least one")
    heads, length, _ = layers[0].scores.shape
    if len(tokens) != length:
        raise ArgumentError(name, "tokens", f"{len(tokens)} texts", f"{length}, one for each token")
    for argument, chosen, count in (("layer", layer, len(layers)), ("head", head, heads)):
        check_size(name, argument, chosen, minimum=0)
        if chosen >= count:
            raise ArgumentError(name, argument, chosen, f"at most {count - 1}")
    if length > most_tokens(len(layers), heads):
        raise ArgumentError(name, "tokens", length, f"at most {most_tokens(len(layers), heads)}")
    data = {
        **page_data(layers, tokens, progress),
        "facts": dict(facts),
        "first": {"layer": layer, "head": head, "row": length - 1},
    }
    # "</script>" in a prompt would end the script, and "<!--" would comment out its end.
    encoded = json.dumps(data, ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
    scripts = "\n".join((FOLDER / f"{script}.js").read_text("utf-8") for script in SCRIPTS)
    parts = {
        "TITLE": html.escape(f"Attention of {facts['model']}"),
        "STYLE": (FOLDER / "page.css").read_text("utf-8"),
        "SCRIPT": scripts,
        "DATA": encoded,
    }
    page = (FOLDER / "page.html").read_text("utf-8")
    # The data come last, because their text may contain the name of another place.
    for place, text in parts.items():
        before, after = page.split(f"@{place}@")
        page = before + text + after
    return page
