"""The data of the page: every number that it shows, as one JSON object."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import mlx.core as mx

from tiny_llm.loading.progress import Progress, silent

from ..attention_weights import LayerAttention, entropy
from ..online_softmax import online_softmax
from ..tiles import block_pattern

MAX_TOKENS = 512  # a heatmap with more rows has less than a pixel for each on most screens
MAX_PAGE_BYTES = 96_000_000
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
MAX_BLOCKS = 64  # along an axis: smaller blocks than that cannot be told apart
MAX_STEPS = 16  # tiles of the stepper
MIN_STEP = 2  # keys of its smallest tile
OUTPUTS = 4  # elements of O' that the stepper shows
WEIGHT_STEPS = 65535  # weights are stored as 16-bit fractions


def page_data(
    layers: Sequence[LayerAttention], tokens: Sequence[str], progress: Progress = silent
) -> dict[str, Any]:
    """The numbers of all layers and heads. Rows hold the visible keys only: row i has i + 1 of them.

    Packed arrays are base64 of little-endian numbers, in the order layer, head, row: `scores` and `entropy`
    float32, `weights` fractions of 65535 as uint16, `states` float32 (m, l, alpha and the first elements
    of O' after each tile of the stepper), `results` the same elements of O, and `lse`.
    """
    length = len(tokens)
    step = step_size(length)
    triangle = mx.array([row * length + key for row in range(length) for key in range(row + 1)])
    tiles = -(-length // step)
    reached = mx.array(
        [row * tiles + tile for row in range(length) for tile in range(row // step + 1)]  # visited by the row
    )
    packed: dict[str, list[bytes]] = {
        name: [] for name in ("scores", "weights", "entropy", "states", "results", "lse")
    }
    means = []
    for number, layer in enumerate(layers):
        progress("preparing the page", number, len(layers))
        heads = layer.scores.shape[0]
        shown = layer.value[..., :OUTPUTS]
        softmax = online_softmax(layer.scores, step, shown)
        assert softmax.output is not None
        assert softmax.result is not None
        states = mx.concatenate(
            [mx.stack([softmax.m, softmax.l, softmax.alpha], axis=-1), softmax.output], axis=-1
        )[:, :, 1:]
        bits = entropy(layer.weights)
        fractions = mx.round(layer.weights * WEIGHT_STEPS).astype(mx.uint16)
        parts = {
            "scores": layer.scores.reshape(heads, -1)[:, triangle],
            "weights": fractions.reshape(heads, -1)[:, triangle],
            "entropy": bits,
            "states": states.reshape(heads, length * tiles, -1)[:, reached],
            "results": softmax.result,
            "lse": softmax.lse,
        }
        for name, array in parts.items():
            packed[name].append(_bytes(array))
        averages: Any = bits.mean(axis=-1).tolist()
        means.append([round(average, 4) for average in averages])
    return {
        "tokens": list(tokens),
        "layers": len(layers),
        "heads": layers[0].scores.shape[0],
        "step": step,
        "outputs": min(OUTPUTS, layers[0].value.shape[-1]),
        "weight_steps": WEIGHT_STEPS,
        "mean_entropy": means,
        "patterns": patterns(length),
        **{name: base64.b64encode(b"".join(parts)).decode() for name, parts in packed.items()},
    }


def page_bytes(layers: int, heads: int, tokens: int) -> int:
    """About how many bytes the page of such a model and prompt has."""
    step = step_size(tokens)
    pairs = tokens * (tokens + 1) // 2
    states = sum(row // step + 1 for row in range(tokens))
    numbers = 6 * pairs + 4 * (states * (3 + OUTPUTS) + tokens * (OUTPUTS + 2))
    return layers * heads * numbers * 4 // 3


def most_tokens(layers: int, heads: int) -> int:
    """The longest prompt whose page is small enough, for a model of this shape."""
    lengths = range(MAX_TOKENS, 0, -1)
    return next(tokens for tokens in lengths if page_bytes(layers, heads, tokens) <= MAX_PAGE_BYTES)


def step_size(tokens: int) -> int:
    """Keys in a tile of the stepper: a power of two that gives at most `MAX_STEPS` tiles."""
    size = MIN_STEP
    while tokens > size * MAX_STEPS:
        size *= 2
    return size


def patterns(tokens: int) -> list[dict[str, Any]]:
    """The block access patterns that can be chosen: kind of mask by block size."""
    window = max(1, tokens // 4)
    kinds: dict[str, dict[str, Any]] = {
        "causal": {"causal": True},
        f"causal, window of {window}": {"causal": True, "window": window},
        "no mask": {"causal": False},
    }
    sizes = [size for size in BLOCK_SIZES if -(-tokens // size) <= MAX_BLOCKS]
    sizes = [size for size in sizes if size < 2 * tokens] or sizes[:1]
    found = []
    for kind, options in kinds.items():
        for size in sizes:
            pattern = block_pattern(tokens, size, **options)
            found.append(
                {
                    "kind": kind,
                    "block_size": size,
                    "rows": ["".join(map(str, row)) for row in asdict(pattern)["tiles"]],
                    "total": pattern.total,
                    "computed": pattern.computed,
                    "skipped": pattern.skipped,
                    "savings_percent": round(pattern.savings_percent, 2),
                }
            )
    return found


def _bytes(array: mx.array) -> bytes:
    return bytes(memoryview(mx.contiguous(array)))  # type: ignore[arg-type]
