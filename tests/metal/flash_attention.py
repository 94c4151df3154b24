"""`flash_attention` as a Metal device would run it: the texts compiled there, on the grids of the host."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from metal_source import inlined

from .harness.kernel import Kernel
from .harness.toolchain import SOURCES, host_library

FAST = SOURCES / "metal/kernels/attention.metal"
SLOT_HEADER = "metal/kernels/arguments.h"
ELEMENTS = {mx.float32: 0, mx.float16: 1, mx.bfloat16: 2}
MASK_KINDS = {None: 0, mx.bool_: 1, mx.float32: 2, mx.float16: 3, mx.bfloat16: 4}

Sizes = tuple[int, int, int]


class Launch(NamedTuple):
    """What the host would dispatch."""

    kernel: str
    threadgroups: Sizes
    threads: Sizes


class Result(NamedTuple):
    out: mx.array
    lse: mx.array
    reports: list[str]


@cache
def host() -> ctypes.CDLL:
    return ctypes.CDLL(str(host_library(Path(__file__).with_name("flash_attention_host.cpp"))))


def launch(function: str, *arguments: int) -> Launch:
    """What that function of the host says to these arguments."""
    sizes = (ctypes.c_uint32 * 6)()
    call = host()[function]
    call.restype = ctypes.c_char_p
    kernel = call(*arguments, sizes)
    return Launch(kernel.decode(), tuple(sizes[:3]), tuple(sizes[3:]))


@cache
def readable_source() -> str:
    """The text of the readable kernel that is compiled where it runs."""
    return inlined((SOURCES / "flash_attention.metal").read_text())


@cache
def fast_source() -> str:
    """The text of all others."""
    return inlined(FAST.read_text())


@cache
def compiled(source: str, name: str, compiler: str | None = None) -> Kernel:
    return Kernel(source, name, slot_header=SLOT_HEADER, compiler=compiler)


class Call:
    """Query [B, Hq, L, E] over key, value [B, Hkv, S, E]; a mask spreads to [B, Hq, L, S]."""

    def __init__(
        self,
        query: mx.array,
        key: mx.array,
        value: mx.array,
        scale: float | None = None,
        mask: mx.array | None = None,
        *,
        causal: bool = False,
        order: int = 0,
        splits: int = 1,
    ):
        B, Hq, L, E = query.shape
        Hkv, S = key.shape[1:3]
        self.N, self.L, self.E, self.dtype, self.order = B * Hq, L, E, query.dtype, order
        self.element = ELEMENTS[query.dtype]
        self.rows = query.shape[:-1]
        keys_per_split = max(-(-S // splits), 1)
        self.splits = max(-(-S // keys_per_split), 1)
        mask_data, mask_strides = mask_as_it_lies(mask, (B, Hq, L, S))
        self.arguments = np.zeros(host().arguments_size(), np.uint8)
        host().fill_arguments(
            ctypes.c_void_p(self.arguments.ctypes.data),
            (ctypes.c_int64 * 4)(*mask_strides),
            *(L, S, E, Hq, Hq // Hkv),
            ctypes.c_float(E**-0.5 if scale is None else scale),
            int(causal),
            MASK_KINDS[None if mask is None else mask.dtype],
            *(self.N, keys_per_split),
        )
        self.inputs = {
            "query": as_memory(query),
            "key": as_memory(key),
            "value": as_memory(value),
            "mask": mask_data,
        }

    def run(self, launch: Launch, kernel: Kernel, inputs: dict[str, np.ndarray], rows, dtype) -> Result:
        buffers = {
            **inputs,
            "output": as_memory(mx.full((*rows, self.E), mx.nan, dtype)),
            "lse": np.full(rows, np.nan, np.float32),
            "args": self.arguments,
        }
        outputs, reports = kernel(launch.threadgroups, launch.threads, buffers, order=self.order)
        return Result(mx.array(outputs["output"]).view(dtype), mx.array(outputs["lse"]), reports)


def readable_kernel(compiler: str | None = None, source: str | None = None) -> Kernel:
    return compiled(source or readable_source(), "flash_attention_f32_e128", compiler)


def run_readable(*inputs: mx.array, kernel: Kernel | None = None, **options) -> Result:
    """The readable kernel; the other arguments are those of `Call`."""
    call = Call(*inputs, **options)
    found = launch("readable_attention", call.N, call.L)
    kernel = kernel or readable_kernel()
    assert found.kernel == kernel.signature.name
    return call.run(found, kernel, call.inputs, call.rows, call.dtype)


def run_prefill(*inputs: mx.array, source: str | None = None, **options) -> Result:
    """The fast kernel for many rows; the other arguments are those of `Call`."""
    call = Call(*inputs, **options)
    found = launch("prefill_attention", call.N, call.L, call.E, call.element)
    return call.run(
        found, compiled(source or fast_source(), found.kernel), call.inputs, call.rows, call.dtype
    )


def run_decode(*inputs: mx.array, source: str | None = None, **options) -> Result:
    """The fast kernel for few rows, and behind several splits the one that merges them."""
    source = source or fast_source()
    call = Call(*inputs, **options)
    found = launch("decode_attention", call.N, call.L, call.E, call.element, call.splits)
    kernel = compiled(source, found.kernel)
    if call.splits == 1:
        return call.run(found, kernel, call.inputs, call.rows, call.dtype)
    parts = call.run(found, kernel, call.inputs, (call.splits, *call.rows), mx.float32)
    found = launch("merge_attention", call.N, call.L, call.element)
    inputs = {"parts": np.array(parts.out), "lses": np.array(parts.lse)}
    whole = call.run(found, compiled(source, found.kernel), inputs, call.rows, call.dtype)
    return whole._replace(reports=parts.reports + whole.reports)


def as_memory(x: mx.array) -> np.ndarray:
    """NumPy has no bfloat16; its bits are as good."""
    return np.array(x.view(mx.uint16) if x.dtype == mx.bfloat16 else x)


def mask_as_it_lies(mask: mx.array | None, shape: tuple[int, ...]) -> tuple[np.ndarray, tuple[int, ...]]:
    """The elements of a mask, and its strides as a tensor of that shape: 0 where it is spread."""
    if mask is None:
        return np.zeros(1, np.float32), (0, 0, 0, 0)
    data = as_memory(mask)
    strides = np.broadcast_to(data, shape).strides
    return data, tuple(stride // data.itemsize for stride in strides)
