"""Matrices that multiply the same x, joined into one: a GPU then runs one product instead of two or three."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import mlx.core as mx

_ARRAYS = ("weight", "scales", "biases", "bias")


class JoinedLayers(NamedTuple):
    """Parts of a checkpoint, each one matrix [sum of O, I]."""

    qkv: Any
    gate_up: Any


def join_layer(layer: Any) -> JoinedLayers | None:
    """Join the matrices of a layer of a checkpoint in memory, once; None if their formats differ.

    The parts stay what they were: their arrays become views of rows of the joined ones.
    """
    attention, mlp = layer.self_attn, layer.mlp
    qkv = (attention.q_proj, attention.k_proj, attention.v_proj)
    gate_up = (mlp.gate_proj, mlp.up_proj)
    if not _have_one_format(qkv) or not _have_one_format(gate_up):
        return None
    return JoinedLayers(_join(qkv), _join(gate_up))


def _have_one_format(parts: Sequence[Any]) -> bool:
    formats = {
        (
            getattr(part, "group_size", None),
            getattr(part, "bits", None),
            getattr(part, "mode", "affine"),
            *((name, *array.shape[1:], array.dtype) for name, array in _arrays(part).items()),
        )
        for part in parts
    }
    return len(formats) == 1


def _join(parts: Sequence[Any]) -> SimpleNamespace:
    first = parts[0]
    joined = SimpleNamespace(**{
        name: getattr(first, name) for name in ("group_size", "bits", "mode") if hasattr(first, name)
    })  # fmt: skip
    for name in _arrays(first):
        arrays = [getattr(part, name) for part in parts]
        whole = mx.concatenate(arrays)
        ends = [sum(len(array) for array in arrays[: i + 1]) for i in range(len(arrays) - 1)]
        views = mx.split(whole, ends)
        mx.eval(whole, views)
        setattr(joined, name, whole)
        for part, view in zip(parts, views, strict=True):
            setattr(part, name, view)
    return joined


def _arrays(part: Any) -> dict[str, mx.array]:
    return {name: part_array for name in _ARRAYS if (part_array := getattr(part, name, None)) is not None}
