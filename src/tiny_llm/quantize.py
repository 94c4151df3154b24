"""Weights of 4 or 8 bits: groups of neighbours share a scale and a bias, value = number * scale + bias."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx

from .embedding import known_ids, nan_unless
from .extension import load_extension


@dataclass(eq=False)
class QuantizedWeights:
    """A matrix [O, I], packed: weight [O, I * bits / 32] uint32, scales and biases [O, I / group_size].

    The first number of a word stands in its lowest bits.
    """

    scales: mx.array
    biases: mx.array
    group_size: int
    bits: int
    weight: mx.array

    @staticmethod
    def from_mlx_layer(mlx_layer: Any) -> QuantizedWeights:
        """Take the arrays of a quantized layer as they are."""
        mode = getattr(mlx_layer, "mode", "affine")
        if mode != "affine":
            raise ValueError(f"QuantizedWeights: mode: got {mode!r}, expected 'affine'")
        if mlx_layer.biases is None:
            raise ValueError("QuantizedWeights: biases: got None, expected those of affine quantization")
        return QuantizedWeights(
            scales=mlx_layer.scales,
            biases=mlx_layer.biases,
            group_size=mlx_layer.group_size,
            bits=mlx_layer.bits,
            weight=mlx_layer.weight,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(O, I) of the matrix that is packed here."""
        rows, words = self.weight.shape
        return rows, words * 32 // self.bits

    def astype(self, dtype: mx.Dtype) -> QuantizedWeights:
        """The same numbers with scales and biases in `dtype`, which is that of the activations."""
        return replace(self, scales=self.scales.astype(dtype), biases=self.biases.astype(dtype))

    def dequantize(self) -> mx.array:
        """The dense matrix [O, I] in the type of the scales."""
        return mx.dequantize(self.weight, self.scales, self.biases, self.group_size, self.bits)

    def rows(self, ids: mx.array) -> mx.array:
        """The dense rows [..., I] at `ids` [...]."""
        chosen = replace(self, weight=self.weight[ids], scales=self.scales[ids], biases=self.biases[ids])
        return chosen.dequantize()


def quantized_linear(x: mx.array, w: QuantizedWeights, bias: mx.array | None = None) -> mx.array:
    """Map `x` [..., I] through the packed weights [O, I] and the optional `bias` [O] to [..., O]."""
    product = quantized_matmul(w.scales, w.biases, w.group_size, w.bits, x, w.weight, transpose_b=True)
    return product if bias is None else product + bias


def quantized_matmul(
    scales: mx.array,
    biases: mx.array,
    group_size: int,
    bits: int,
    a: mx.array,
    b: mx.array,
    transpose_b: bool = False,
) -> mx.array:
    """Multiply `a` [..., I] by the transpose of the packed matrix `b` [O, I * bits / 32] to [..., O].

    Sums are float32 and rounded once, to the type of a. Only the transposed product exists.
    On a GPU this is the product of MLX, tuned there; `tiny_llm_ext.quantized_matmul` has our kernels.
    """
    if a.ndim == 0:
        raise ValueError("quantized_matmul: a: got a number, expected (..., I)")
    rows = mx.flatten(a, 0, -2) if a.ndim > 1 else a[None]
    if mx.default_device() == mx.gpu:
        product = mx.quantized_matmul(rows, b, scales, biases, transpose_b, group_size, bits)
    else:
        product = load_extension().quantized_matmul(scales, biases, group_size, bits, rows, b, transpose_b)
    return product.reshape(*a.shape[:-1], product.shape[-1])


def dequantize_linear(mlx_layer: Any) -> mx.array:
    """The dense matrix [O, I] of a quantized layer, in the type of its scales."""
    return QuantizedWeights.from_mlx_layer(mlx_layer).dequantize()


class QuantizedEmbedding:
    """An `Embedding` whose table [V, E] stays packed: a row is unpacked when it is looked up."""

    def __init__(self, vocab_size: int, embedding_dim: int, weight: QuantizedWeights):
        if weight.shape != (vocab_size, embedding_dim):
            raise ValueError(
                f"Embedding: weight: got shape {weight.shape}, expected ({vocab_size}, {embedding_dim})"
            )
        self.vocab_size = vocab_size
        self.embedding_dim = embedding_dim
        self.weight = weight

    def __call__(self, ids: mx.array) -> mx.array:
        """Look up the vectors [..., E] of the token `ids` [...]; an id outside 0..V-1 gives a row of NaN."""
        ids, known = known_ids(ids, self.vocab_size)
        return nan_unless(known, self.weight.rows(ids))

    def as_linear(self, x: mx.array) -> mx.array:
        """Score the vectors `x` [..., E] against every token's vector: logits [..., V]."""
        return quantized_linear(x, self.weight)
