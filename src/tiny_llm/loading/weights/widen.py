"""Packed weights of 2, 3, 5 or 6 bits in the next width that kernels have; no number changes."""

import mlx.core as mx

from ..config import Quantization

NUMBERS = 2**18  # that are widened at a time, so that they stay in the cache of a core


def widen(words: mx.array, packing: Quantization) -> mx.array:
    """The numbers of words [O, I * bits / 32] uint32 in 4 or 8 bits, [O, I * wide / 32]."""
    bits, wide = packing.bits, packing.in_memory.bits
    rows = words.shape[0]
    eights = mx.unflatten(mx.flatten(words.view(mx.uint8)), 0, (-1, bits))  # 8 numbers have as many bytes
    parts = []
    for start in range(0, eights.shape[0], NUMBERS // 8):
        parts.append(_spread(eights[start : start + NUMBERS // 8], bits, wide))
        mx.eval(parts[-1])
    return mx.concatenate(parts).reshape(rows, -1)


def _spread(eights: mx.array, bits: int, wide: int) -> mx.array:
    """[N, bits] bytes -> [N * wide / 4] uint32: halves of 8, 4 and 2 numbers move apart."""
    packed = eights[:, 0].astype(mx.uint64)
    for number in range(1, bits):
        packed = packed | (eights[:, number].astype(mx.uint64) << mx.array(8 * number, mx.uint64))
    for half in (4, 2, 1):
        low = sum(((1 << half * bits) - 1) << place for place in range(0, 8 * wide, 2 * half * wide))
        high = (packed & mx.array(low << half * bits, mx.uint64)) << mx.array(half * (wide - bits), mx.uint64)
        packed = (packed & mx.array(low, mx.uint64)) | high
    return packed.astype(mx.uint32) if wide == 4 else packed.view(mx.uint32)
