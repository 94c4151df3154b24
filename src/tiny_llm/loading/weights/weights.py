"""Reading the weights, once every tensor is known to be there, and handing them over as a model."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import mlx.core as mx

from ..config import ModelConfig
from ..errors import LoadError
from ..progress import Progress
from .header import Tensor
from .memory import check_memory
from .placement import read_arrays
from .requirements import check_tensors, packing_of

REPORT = 2**26  # bytes that are read between two reports


def load_weights(
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    progress: Progress,
    bytes_per_weight: float | None = None,
) -> dict[str, mx.array]:
    """Check all tensors against the config and the memory; then read them, in the order of the files."""
    needed = check_tensors(config, tensors)
    total = sum(tensors[name].nbytes for name in needed)
    check_memory(config, total, bytes_per_weight)
    order = sorted(needed, key=lambda name: (tensors[name].file, tensors[name].begin))
    arrays: dict[str, mx.array] = {}
    done = reported = 0
    progress("loading weights", 0, total)
    try:
        for name, array in read_arrays({name: tensors[name] for name in order}):
            arrays[name] = array
            done += array.nbytes
            if done == total or done - reported >= REPORT:
                progress("loading weights", done, total)
                reported = done
    except (OSError, RuntimeError, ValueError) as error:
        raise LoadError(f"weights: cannot be read: {error}") from error
    return arrays


def assemble(config: ModelConfig, arrays: Mapping[str, mx.array]) -> Any:
    """The arrays as a tree of attributes and lists, which is what the models read; `args` is the config."""
    root: dict[str, Any] = {}
    for name, array in arrays.items():
        part, _, kind = name.rpartition(".")
        node = root
        for step in part.split("."):
            node = node.setdefault(step, {})
        node[kind] = array
        if kind == "scales":
            packing = packing_of(config, part)
            assert packing is not None
            node |= {"group_size": packing.group_size, "bits": packing.bits}
    return SimpleNamespace(args=config, **{name: _as_attributes(node) for name, node in root.items()})


def _as_attributes(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    children = {name: _as_attributes(child) for name, child in node.items()}
    if all(name.isdecimal() for name in children):
        return [children[name] for name in sorted(children, key=int)]
    return SimpleNamespace(**children)
