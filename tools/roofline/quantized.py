"""The resources of the products with packed weights, counted from their sources."""

from __future__ import annotations

from .model import ADDRESSES, LANES, LINE, Kernel

# A projection.
N = K = 4096
GROUP = 64  # weights that share a scale and a bias, both 16 bits


def weight_bytes(bits: int) -> float:
    return N * K * bits / 8 + N * K / GROUP * 4


def few_rows(rows: int, bits: int = 4, size: int = 2) -> Kernel:
    """few_rows.h: a lane takes a word of each of 4 outputs; a SIMD group 32 neighbouring words."""
    outputs, word = 4, 32 // bits
    weights = outputs * word * LANES
    x = rows * word * LANES  # numbers of the rows
    scales = 2 * outputs * LANES
    need = {
        # A weight is unpacked by four instructions, once for all rows; an element of a row is converted.
        "arithmetic": 4 * weights + rows * weights + 2 * x,
        "loads": weights * bits / 8 + scales * size + x * size,
        # The words of a SIMD group are one line. The elements of a row for neighbouring lanes are word * size
        # bytes apart: each load touches these few lines again.
        "cache lines": outputs + 2 * outputs + rows * word * (LANES * word * size / LINE),
    }
    activations = rows * (N + K) * float(size)
    return Kernel(
        name=f"{'one row' if rows == 1 else 'few rows'}, f16, {bits} bits",
        source_name=f"quantized_{'one_row' if rows == 1 else 'few_rows'}_f16_b{bits}",
        call=f"M = {rows}, N = K = {N}",
        unit=f"{outputs} outputs, {word * LANES} of K",
        need=need,
        units=N / outputs * K / (word * LANES),
        operations=2.0 * rows * N * K,
        once=weight_bytes(bits) + activations,
        uncached=weight_bytes(bits) + activations,
        threads=128,
        threadgroup_bytes=0,
        registers=rows * outputs + outputs * word + 3 * outputs + ADDRESSES,
        is_memory_bound=True,
    )


def many_rows(bits: int = 4, size: int = 2) -> Kernel:
    """many_rows.h: a SIMD group multiplies 16 rows with 32 outputs, over 32 numbers of K."""
    rows = 512
    fragments = (16 + 32) * 32  # elements that it reads
    unpacked = 64 * 32 / 4  # its share of the tile of weights
    loaded = 32 * 32 / 4
    need = {
        # Multiply-adds, conversions of the rows, unpacking, and indices of loads.
        "arithmetic": 16 * 32 * 32 + 16 * 32 + 4 * unpacked + 6 * (loaded + unpacked * bits / 32),
        "threadgroup memory": (fragments + unpacked + loaded) * 4,
        "loads": loaded * size + unpacked * bits / 8 + unpacked * bits / 32 * 2 * size,
        "cache lines": (loaded * size) / LINE + unpacked * bits / 8 / LANES,
    }
    tiles = (rows / 32) * (N / 64)  # threadgroups
    activations = rows * (N + K) * float(size)
    return Kernel(
        name=f"many rows, f16, {bits} bits",
        source_name=f"quantized_many_rows_f16_b{bits}",
        call=f"M = {rows}, N = K = {N}",
        unit="16 rows, 32 outputs, 32 of K",
        need=need,
        units=tiles * 4 * K / 32,
        operations=2.0 * rows * N * K,
        once=weight_bytes(bits) + activations,
        uncached=weight_bytes(bits) * rows / 32 + rows * (N + K * (N / 64)) * float(size),
        threads=128,
        threadgroup_bytes=32 * (32 * size + 16) + 64 * (32 * 4 + 16),
        registers=2 * (2 * 4 + 2 + 4) + ADDRESSES,
    )
