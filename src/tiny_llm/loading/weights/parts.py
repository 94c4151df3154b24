"""A loaded model as its parts, by the names that files of weights give them."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import mlx.core as mx


def named_parts(node: Any, name: str = "") -> Iterator[tuple[str, SimpleNamespace]]:
    """Every part below `node` that has arrays, such as "model.layers.0.mlp.up_proj"."""
    if isinstance(node, SimpleNamespace) and hasattr(node, "weight"):
        yield name, node
    elif isinstance(node, SimpleNamespace | list):
        children = enumerate(node) if isinstance(node, list) else vars(node).items()
        for step, child in children:
            yield from named_parts(child, f"{name}.{step}" if name else f"{step}")


def named_arrays(part: SimpleNamespace, name: str) -> dict[str, mx.array]:
    """The arrays of a part: its weight and, where it has them, scales, biases and bias."""
    return {f"{name}.{which}": array for which, array in vars(part).items() if isinstance(array, mx.array)}
