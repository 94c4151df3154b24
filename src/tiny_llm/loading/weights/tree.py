"""A loaded model as a tree of attributes and lists, which the models read: made, walked and converted."""

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import mlx.core as mx

from ...models.ops import LoadWeights
from ...quantize import QuantizedWeights
from ..config import ModelConfig
from .layout import quantization_for


def assemble(config: ModelConfig, arrays: Mapping[str, mx.array]) -> Any:
    """The arrays as a tree: "model.norm.weight" is `tree.model.norm.weight`. `tree.args` is the config.

    A part with scales gets the `group_size` and `bits` of its packing.
    """
    root: dict[str, Any] = {}
    for name, array in arrays.items():
        part, _, kind = name.rpartition(".")
        node = root
        for step in part.split("."):
            node = node.setdefault(step, {})
        node[kind] = array
        if kind == "scales":
            packing = quantization_for(config, part)
            assert packing is not None
            node |= {"group_size": packing.group_size, "bits": packing.bits}
    return SimpleNamespace(args=config, **{name: _as_attributes(node) for name, node in root.items()})


def named_parts(node: Any, name: str = "") -> Iterator[tuple[str, SimpleNamespace]]:
    """Every part below `node` that has arrays, by its name, such as "model.layers.0.mlp.up_proj"."""
    if isinstance(node, SimpleNamespace) and hasattr(node, "weight"):
        yield name, node
    elif isinstance(node, SimpleNamespace | list):
        children = enumerate(node) if isinstance(node, list) else vars(node).items()
        for step, child in children:
            yield from named_parts(child, f"{name}.{step}" if name else f"{step}")


def named_arrays(part: SimpleNamespace, name: str) -> dict[str, mx.array]:
    """The arrays of a part: its weight and, where it has them, scales, biases and bias."""
    return {f"{name}.{which}": array for which, array in vars(part).items() if isinstance(array, mx.array)}


def convert_in_place(mlx_model: Any, read: LoadWeights, dtype: mx.Dtype) -> None:
    """Replace each matrix of a tree by the result of `read` for activations in `dtype`.

    A model built with the same `read` and `dtype` then takes the arrays as they are, so weights are in memory
    once. Each original is dropped before the next matrix is read. A packed matrix that `read` would unpack
    stays packed, because other models may be built from the tree. Norms stay: models take them in any type.
    """
    for _, part in named_parts(mlx_model):
        if part.weight.ndim == 2:
            _convert(part, read, dtype)


def _convert(part: Any, read: LoadWeights, dtype: mx.Dtype) -> None:
    weights = read(part, dtype)
    if isinstance(weights, QuantizedWeights):
        part.scales, part.biases = weights.scales, weights.biases
        mx.eval(part.scales, part.biases)
    elif not hasattr(part, "scales"):
        part.weight = weights
        mx.eval(part.weight)
    if hasattr(part, "bias"):
        part.bias = part.bias.astype(dtype)
        mx.eval(part.bias)


def _as_attributes(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    children = {name: _as_attributes(child) for name, child in node.items()}
    if all(name.isdecimal() for name in children):
        return [children[name] for name in sorted(children, key=int)]
    return SimpleNamespace(**children)
