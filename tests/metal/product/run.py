"""`quantized_matmul` in the harness: the same kernel source as on a Metal device, with the host's launch."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from metal_source import inlined

from ...support.products.quantized import Packed
from ..attention.run import ELEMENTS, Launch, as_memory
from ..harness.kernel import Kernel
from ..harness.toolchain import SOURCES, host_library

TEXT = SOURCES / "quantized_matmul.metal"
SLOT_HEADER = "metal/quantized/arguments.h"


class Product(NamedTuple):
    out: mx.array
    reports: list[str]


@cache
def host() -> ctypes.CDLL:
    library = ctypes.CDLL(str(host_library(Path(__file__).with_name("host.cpp"))))
    library.quantized_matmul.restype = ctypes.c_char_p
    return library


@cache
def source() -> str:
    """The source of all kernels of the quantized product, with its headers inlined."""
    return inlined(TEXT.read_text())


@cache
def compiled(source: str, name: str, compiler: str | None = None) -> Kernel:
    return Kernel(source, name, slot_header=SLOT_HEADER, compiler=compiler)


def launch_product(
    M: int, N: int, K: int, bits: int, group_size: int, dtype: mx.Dtype
) -> tuple[Launch, np.ndarray]:
    """The host's launch, and its arguments."""
    sizes = (ctypes.c_uint32 * 6)()
    name = host().quantized_matmul(M, N, bits, ELEMENTS[dtype], sizes).decode()
    arguments = np.zeros(host().arguments_size(), np.uint8)
    host().fill_arguments(ctypes.c_void_p(arguments.ctypes.data), M, N, K, group_size)
    return Launch(name, tuple(sizes[:3]), tuple(sizes[3:])), arguments


def run_quantized(
    a: mx.array, weights: Packed, *, order: int = 0, text: str | None = None, compiler: str | None = None
) -> Product:
    """Run the kernel that the host chooses for a [M, K] and weights [N, K]."""
    (M, K), N = a.shape, len(weights.words)
    found, arguments = launch_product(M, N, K, weights.bits, weights.group_size, a.dtype)
    buffers = {
        "rows": as_memory(a),
        "words": as_memory(weights.words),
        "scales": as_memory(weights.scales),
        "biases": as_memory(weights.biases),
        "product": as_memory(mx.full((M, N), mx.nan, a.dtype)),
        "args": arguments,
    }
    kernel = compiled(text or source(), found.kernel, compiler)
    outputs, reports = kernel(found.threadgroups, found.threads, buffers, order=order)
    return Product(mx.array(outputs["product"]).view(a.dtype), reports)
