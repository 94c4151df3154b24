"""A checkpoint in the type that its model computes in, so that both refer to one copy of the weights."""

from typing import Any

import mlx.core as mx

from ...models.ops import Read
from ...quantize import QuantizedWeights
from .parts import named_parts


def convert_in_place(mlx_model: Any, read: Read, dtype: mx.Dtype) -> None:
    """Put into a checkpoint what `read` makes of each of its matrices for activations in `dtype`.

    One at a time, and each original is dropped before the next: a model that is built with the same `read`
    and `dtype` then takes the arrays as they are. A packed matrix that `read` would unpack stays packed, for
    others may read this checkpoint, too. Norms stay as well: models take them as they are.
    """
    for _, part in named_parts(mlx_model):
        if part.weight.ndim == 2:
            _convert(part, read, dtype)


def _convert(part: Any, read: Read, dtype: mx.Dtype) -> None:
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
