"""How the weights of a checkpoint's layer are held, and what is done with them in either form."""

from typing import Any

import mlx.core as mx

from ..basics import linear
from ..embedding import Embedding
from ..quantize import QuantizedEmbedding, QuantizedWeights, quantized_linear

Weights = mx.array | QuantizedWeights


def read_dense(layer: Any, dtype: mx.Dtype) -> mx.array:
    """The matrix of a layer, unpacked if it is quantized, and rounded to `dtype` once."""
    if hasattr(layer, "scales"):
        return QuantizedWeights.from_mlx_layer(layer).astype(mx.float32).dequantize().astype(dtype)
    weight: mx.array = layer.weight
    return weight.astype(dtype)


def read_packed(layer: Any, dtype: mx.Dtype) -> Weights:
    """The matrix of a layer as it is, for activations in `dtype`."""
    if hasattr(layer, "scales"):
        return QuantizedWeights.from_mlx_layer(layer).astype(dtype)
    return read_dense(layer, dtype)


def multiply(x: mx.array, weights: Weights, bias: mx.array | None = None) -> mx.array:
    """Map `x` [..., I] through weights [O, I] of either form to [..., O]."""
    if isinstance(weights, QuantizedWeights):
        return quantized_linear(x, weights, bias)
    return linear(x, weights, bias)


def token_table(vocab_size: int, hidden_size: int, weights: Weights) -> Embedding | QuantizedEmbedding:
    """The embedding over weights [V, E] of either form."""
    if isinstance(weights, QuantizedWeights):
        return QuantizedEmbedding(vocab_size, hidden_size, weights)
    return Embedding(vocab_size, hidden_size, weights)
