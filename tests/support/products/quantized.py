"""Random quantized weights in the course's layout, and the same weights dequantized in float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

from tiny_llm.runtime.extension import load_extension

from ..tolerance import Float64, to_float64

# Largest error of a product with float32 sums and one rounding, relative to the largest output.
RELATIVE_FLOOR = {mx.float32: 1e-5, mx.float16: 1e-3, mx.bfloat16: 8e-3}


class Packed(NamedTuple):
    """Weights [N, K]: words of uint32 [N, K * bits / 32], scales and biases [N, K / group_size]."""

    scales: mx.array
    biases: mx.array
    group_size: int
    bits: int
    words: mx.array

    def dense(self) -> Float64:
        """The dequantized weights: number j of a row begins at bit `bits * j` of the row."""
        words = np.array(self.words).astype(np.uint64)
        per_word = 32 // self.bits
        shifts = np.arange(per_word, dtype=np.uint64) * np.uint64(self.bits)
        numbers = (words[:, :, None] >> shifts) & np.uint64(2**self.bits - 1)
        numbers = numbers.reshape(len(words), words.shape[1] * per_word).astype(np.float64)
        scales, biases = (
            np.repeat(to_float64(x), self.group_size, axis=1) for x in (self.scales, self.biases)
        )
        return numbers * scales + biases


def packed(
    N: int, K: int, *, group_size: int = 64, bits: int = 4, dtype: mx.Dtype = mx.float32, seed: int = 0
) -> Packed:
    """Random words; scales and biases that make weights of about unit size around 0."""
    generator = np.random.default_rng(seed)
    words = generator.integers(0, 2**32, (N, K * bits // 32), dtype=np.uint32)
    scales = generator.uniform(0.5, 1.5, (N, K // group_size)) * 4 / 2**bits
    biases = generator.normal(-2, 0.3, (N, K // group_size))
    return Packed(
        mx.array(scales.astype(np.float32)).astype(dtype),
        mx.array(biases.astype(np.float32)).astype(dtype),
        group_size,
        bits,
        mx.array(words),
    )


def without_weight(weights: Packed, columns: mx.array, number: str) -> Packed:
    """The same weights, exactly zero in these columns; zero is packed as the "lowest" or "middle" number."""
    zero = 0 if number == "lowest" else 2 ** (weights.bits - 1)
    words = np.array(weights.words)
    numbers = words.view(np.uint8)
    per_byte = 8 // weights.bits
    for column in np.array(columns):
        shift = column % per_byte * weights.bits
        kept = numbers[:, column // per_byte] & ~np.uint8((2**weights.bits - 1) << shift)
        numbers[:, column // per_byte] = kept | np.uint8(zero << shift)
    made = weights._replace(words=mx.array(words), biases=-zero * weights.scales)
    assert not made.dense()[:, np.array(columns)].any()
    return made


def multiply(a: mx.array, weights: Packed, **options: Any) -> mx.array:
    """The native product of a with the transposed weights."""
    product: mx.array = load_extension().quantized_matmul(
        *weights[:4], a, weights.words, transpose_b=True, **options
    )
    return product


def assert_product(actual: mx.array, a: mx.array, weights: Packed) -> None:
    """`actual` is a times the transposed weights, in the dtype of a."""
    assert actual.dtype == a.dtype
    assert actual.shape == (*a.shape[:-1], len(weights.words))
    expected = to_float64(a) @ weights.dense().T
    error = np.abs(to_float64(actual) - expected).max(initial=0.0)
    allowed = RELATIVE_FLOOR[a.dtype] * np.abs(expected).max(initial=0.0)
    assert error <= allowed, f"error {error:.3g}, allowed {allowed:.3g}"  # never true of NaN
