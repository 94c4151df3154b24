"""`flash_attention` in the harness: the kernel sources of a Metal device, with the host's launches."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from metal_source import inlined

from ...support.attention.oracle import window_limits
from ..harness.kernel import Kernel
from ..harness.signature import signatures
from ..harness.toolchain import SOURCES, host_library
from .arguments import (
    ELEMENTS,
    MASK_KINDS,
    UNBOUNDED,
    FastArguments,
    MaskStrides,
    ReadableArguments,
    as_bytes,
    as_memory,
    element_strides,
    laid_out,
    lengths,
)

FAST = SOURCES / "metal/kernels/attention.metal"
SLOT_HEADER = "metal/kernels/fast_arguments.h"
FEATURES = 6

Sizes = tuple[int, int, int]


class Launch(NamedTuple):
    """A launch by the host."""

    kernel: str
    threadgroups: Sizes
    threads: Sizes
    features: tuple[int, ...] = ()


class Result(NamedTuple):
    out: mx.array
    lse: mx.array
    reports: list[str]


@cache
def host() -> ctypes.CDLL:
    library = ctypes.CDLL(str(host_library(Path(__file__).with_name("host.cpp"))))
    assert library.arguments_size() == ctypes.sizeof(ReadableArguments)
    assert library.fast_arguments_size() == ctypes.sizeof(FastArguments)
    return library


def launch(function: str, *arguments: object, features: int = 0) -> Launch:
    """The launch that this function of the host returns for these arguments."""
    sizes, found = (ctypes.c_uint32 * 6)(), (ctypes.c_int * features)()
    call = host()[function]
    call.restype = ctypes.c_char_p
    kernel = call(*arguments, sizes, *([found] if features else []))
    return Launch(kernel.decode(), tuple(sizes[:3]), tuple(sizes[3:]), tuple(found))


@cache
def readable_source() -> str:
    """The source of the readable kernel, with its headers inlined."""
    return inlined((SOURCES / "flash_attention.metal").read_text())


@cache
def fast_source() -> str:
    """The source of all other attention kernels, with their headers inlined."""
    return inlined(FAST.read_text())


@cache
def compiled(source: str, name: str, compiler: str | None = None) -> Kernel:
    return Kernel(source, name, slot_header=SLOT_HEADER, compiler=compiler)


def fast_kernels(prefix: str) -> set[str]:
    """The names of the fast kernels with this prefix."""
    return {found.name for found in signatures(fast_source()) if found.name.startswith(prefix)}


def run(
    found: Launch,
    kernel: Kernel,
    inputs: dict,
    rows: tuple[int, ...],
    E: int,
    dtype: mx.Dtype,
    order: int,
    sums: int = 1,
) -> Result:
    """Run a kernel that writes, for each row, an output and a log-sum-exp, or `sums` numbers in its place."""
    assert found.kernel == kernel.signature.name
    output = as_memory(mx.full((*rows, E), mx.nan, dtype))
    of_rows = rows if sums == 1 else (*rows, sums)
    buffers = {**inputs, "output": output, "lse": np.full(of_rows, np.nan, np.float32)}
    outputs, reports = kernel(
        found.threadgroups, found.threads, buffers, order=order, constants=found.features
    )
    return Result(mx.array(outputs["output"]).view(dtype), mx.array(outputs["lse"]), reports)


def mask_memory(mask: mx.array | None, shape: tuple[int, ...]) -> tuple[np.ndarray, MaskStrides]:
    """The elements of a mask, and its strides when broadcast to the shape of the scores."""
    if mask is None:
        return np.zeros(1, np.float32), MaskStrides()
    data = as_memory(mask)
    return data, MaskStrides(*element_strides(data, shape))


def readable_kernel(compiler: str | None = None, source: str | None = None) -> Kernel:
    return compiled(source or readable_source(), "flash_attention_f32_e128", compiler)


def run_readable(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | None = None,
    mask: mx.array | None = None,
    *,
    causal: bool = False,
    order: int = 0,
    kernel: Kernel | None = None,
) -> Result:
    """The readable kernel on query [B, Hq, L, E] and key, value [B, Hkv, S, E]."""
    B, heads, L, E = query.shape
    kv_heads, S = key.shape[1:3]
    data, strides = mask_memory(mask, (B, heads, L, S))
    scale = E**-0.5 if scale is None else scale
    kind = MASK_KINDS[None if mask is None else mask.dtype]
    arguments = ReadableArguments(strides, L, S, E, heads, heads // kv_heads, scale, causal, kind)
    tensors = {"query": as_memory(query), "key": as_memory(key), "value": as_memory(value), "mask": data}
    inputs = {**tensors, "args": as_bytes(arguments)}
    found = launch("readable_attention", B * heads, L)
    return run(found, kernel or readable_kernel(), inputs, (B, heads, L), E, query.dtype, order)


class FastCall:
    """Query [B, Hq, L, E] over key, value [B, Hkv, S, E] with the options of `flash_attention`."""

    def __init__(
        self,
        query: mx.array,
        key: mx.array,
        value: mx.array,
        scale: float | None = None,
        mask: mx.array | None = None,
        *,
        causal: bool = False,
        window: int | tuple[int, int] | None = None,
        softcap: float | None = None,
        sinks: mx.array | None = None,
        layout: str = "dense",
        keys_per_split: int = UNBOUNDED,
        order: int = 0,
        source: str | None = None,
        **given_lengths: mx.array,
    ):
        B, heads, L, E = query.shape
        kv_heads, S = key.shape[1:3]
        self.rows, self.E, self.dtype, self.order = (B, heads, L), E, query.dtype, order
        self.source = source or fast_source()
        self.mask_kind = MASK_KINDS[None if mask is None else mask.dtype]
        self.has_sinks = sinks is not None

        left, right = window_limits(window, causal)
        sizes = {"N": B * heads, "heads": heads, "group": heads // kv_heads, "L": L, "S": S, "E": E}
        args = self.args = FastArguments(**sizes, keys_per_split=keys_per_split)
        args.left, args.right = int(min(left, UNBOUNDED)), 0 if causal else int(min(right, UNBOUNDED))
        args.scale, args.softcap = E**-0.5 if scale is None else scale, softcap or 0.0
        inputs = self.inputs = {}
        for name, x in (("query", query), ("key", key), ("value", value)):
            inputs[name], strides = laid_out(x, layout)
            setattr(args, name, strides)
        inputs["mask"], args.mask = mask_memory(mask, (B, heads, L, S))
        inputs["sinks"] = np.array(mx.zeros(1) if sinks is None else sinks)
        args.sinks_batch, args.sinks_head = element_strides(inputs["sinks"], (B, heads))
        for name in ("q_lens", "kv_start", "kv_lens"):
            inputs[name], found = lengths(given_lengths.get(name))
            setattr(args, name, found)

    def launch(self, step: str) -> Launch:
        given = ctypes.byref(self.args), ELEMENTS[self.dtype]
        if step == "merge":
            return launch("merge_attention", *given)
        features = (self.mask_kind, self.has_sinks)
        return launch(f"{step}_attention", *given, *features, features=FEATURES)

    def run(self, step: str, inputs: dict | None = None, parts: int = 0) -> Result:
        """Run one kernel; with `parts`, it writes so many float32 parts and two sums for each."""
        found = self.launch(step)
        kernel = compiled(self.source, found.kernel)
        inputs = {**(inputs or self.inputs), "args": as_bytes(self.args)}
        rows, dtype = ((parts, *self.rows), mx.float32) if parts else (self.rows, self.dtype)
        return run(found, kernel, inputs, rows, self.E, dtype, self.order, sums=2 if parts else 1)


def run_prefill(*inputs: mx.array, **options) -> Result:
    """The fast kernel for many rows; the arguments are those of `FastCall`."""
    return FastCall(*inputs, **options).run("prefill")


def run_decode(*inputs: mx.array, **options) -> Result:
    """The fast kernel for few rows, followed by the merge kernel if there are several splits."""
    call = FastCall(*inputs, **options)
    splits = host().split_count(ctypes.byref(call.args))
    if splits == 1:
        return call.run("decode")
    parts = call.run("decode", parts=splits)
    whole = call.run("merge", {"parts": np.array(parts.out), "sums": np.array(parts.lse)})
    return whole._replace(reports=parts.reports + whole.reports)
