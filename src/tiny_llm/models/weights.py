"""The weights of a layer in either form, dense or quantized, and the products with them."""

from collections.abc import Iterable, Sequence
from typing import Any

import mlx.core as mx

from ..basics import linear, silu_multiply
from ..embedding import Embedding
from ..layer_norm import RMSNorm
from ..quantize import (
    NO_BIAS,
    QuantizedEmbedding,
    QuantizedWeights,
    quantized_gate,
    quantized_heads,
    quantized_linear,
)
from .sharded import JoinedWeights, SummedWeights

Weights = mx.array | QuantizedWeights


def eval_weights(parts: Iterable[object]) -> None:
    """Evaluate the arrays and the quantized matrices among `parts`.

    Only the thread that made a graph can evaluate it, and a model may be used in others.
    """
    mx.eval([arrays_of(part) for part in parts])


def arrays_of(part: object) -> tuple[mx.array, ...]:
    """The arrays of a matrix in any form, or of a vector; none of anything else."""
    if isinstance(part, SummedWeights | JoinedWeights):
        part = part.local
    if isinstance(part, QuantizedWeights):
        return part.weight, part.scales, part.biases
    return (part,) if isinstance(part, mx.array) else ()


def dense_weights(layer: Any, dtype: mx.Dtype) -> mx.array:
    """The dense matrix of a layer, dequantized if necessary and rounded to `dtype` once."""
    if hasattr(layer, "scales"):
        return QuantizedWeights.from_mlx_layer(layer).astype(mx.float32).dequantize().astype(dtype)
    weight: mx.array = layer.weight
    return weight.astype(dtype)


def quantized_weights(layer: Any, dtype: mx.Dtype) -> Weights:
    """The matrix of a layer in its own form, for activations in `dtype`."""
    if hasattr(layer, "scales"):
        return QuantizedWeights.from_mlx_layer(layer).astype(dtype)
    return dense_weights(layer, dtype)


def multiply(
    x: mx.array,
    weights: Weights | SummedWeights | JoinedWeights,
    bias: mx.array | None = None,
    residual: mx.array | None = None,
) -> mx.array:
    """Map `x` [..., I] through weights [O, I] of any form to [..., O], and add the `residual`."""
    if isinstance(weights, SummedWeights | JoinedWeights):
        local = multiply(x, weights.local, bias)
        product = weights.ranks.sum(local) if isinstance(weights, SummedWeights) else weights.join(local)
        return product if residual is None else residual + product
    if isinstance(weights, QuantizedWeights):
        return quantized_linear(x, weights, bias, residual=residual)
    product = linear(x, weights, bias)
    return product if residual is None else residual + product


def multiply_heads(
    x: mx.array,
    matrices: Sequence[Weights],
    biases: Sequence[mx.array] | None,
    size: int,
    norm: RMSNorm | None,
) -> list[mx.array]:
    """Map `x` [..., I], normalised by `norm`, through matrices [H * size, I] and biases to [..., H, size]."""
    packed = [weights for weights in matrices if isinstance(weights, QuantizedWeights)]
    if len(packed) == len(matrices):
        return quantized_heads(x, packed, biases, size, norm=norm)
    x = x if norm is None else norm(x)
    return [
        mx.unflatten(multiply(x, weights, bias), -1, (-1, size))
        for weights, bias in zip(matrices, biases or NO_BIAS * len(matrices), strict=True)
    ]


def multiply_gated(x: mx.array, gate: Weights, up: Weights, norm: RMSNorm | None) -> mx.array:
    """Compute silu(gate x) * up x for `x`, normalised by `norm`, and weights [O, I] of either form."""
    if isinstance(gate, QuantizedWeights) and isinstance(up, QuantizedWeights):
        return quantized_gate(x, gate, up, norm=norm)
    x = x if norm is None else norm(x)
    return silu_multiply(multiply(x, gate), multiply(x, up))


def token_table(vocab_size: int, hidden_size: int, weights: Weights) -> Embedding | QuantizedEmbedding:
    """The embedding over weights [V, E] of either form."""
    if isinstance(weights, QuantizedWeights):
        return QuantizedEmbedding(vocab_size, hidden_size, weights)
    return Embedding(vocab_size, hidden_size, weights)
