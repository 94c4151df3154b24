"""What this machine can do at most, measured: operations on registers, and reads from memory."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from tiny_llm.checks.arrays import check_float_dtype
from tiny_llm.runtime.extension import load_extension

NATIVE_NAMES = {mx.float32: "f32", mx.float16: "f16", mx.bfloat16: "bf16"}
READ_BYTES = 1 << 28  # more than the caches of a CPU
SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Peaks:
    """Tera-operations per second and terabytes per second; None where no measurement exists."""

    tflops: float | None
    bandwidth_tb: float | None


def measured_peaks(dtype: mx.Dtype = mx.float32) -> Peaks:
    """The peaks of MLX's default device for products of this type. Of a GPU there is no measurement."""
    check_float_dtype("measured_peaks", "dtype", dtype)
    if mx.default_device().type != mx.cpu:
        return Peaks(None, None)
    extension = load_extension()
    prompts, decoding = extension.cpu_threads()
    gflops = extension.peak(extension.cpu_isa(), NATIVE_NAMES[dtype], prompts, SECONDS)
    gigabytes = extension.read_bandwidth(READ_BYTES, decoding, SECONDS)
    return Peaks(gflops / 1e3, gigabytes / 1e3)
