"""The extension on the GPU of a Mac; elsewhere on a device that records dispatches for the harness to run."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

import build
from tiny_llm.runtime.extension import load_extension

from ..harness.kernel import Kernel
from ..harness.toolchain import need_this_platform

IS_REAL = mx.metal.is_available()
OUTPUT = build.BUILD / "src/extensions/metal_host"
SLOT_HEADERS = {"quantized": "metal/quantized/arguments.h"}  # by the first word of a kernel's name
MOST_THREADS = 1024


class Dispatch(NamedTuple):
    """One dispatch, as the device received it."""

    kernel: str
    constants: tuple[int, ...]
    threadgroups: tuple[int, ...]
    threads: tuple[int, ...]
    arguments: dict[int, bytes]  # by slot
    outputs: frozenset[int]  # the slots that were bound as outputs
    slots: frozenset[int]  # all bound slots
    temporaries: int  # bytes allocated for this kernel
    copies: int  # bytes of the temporaries that the kernel reads


@dataclass
class Record:
    """The dispatches of an evaluation, and the harness's results."""

    kernels: list[str] = field(default_factory=list)
    dispatches: list[Dispatch] = field(default_factory=list)
    barriers: list[int] = field(default_factory=list)  # for each kernel that ran, passed by all threadgroups
    reports: list[str] = field(default_factory=list)


record = Record()
runs_kernels = True


class RealDevice:
    """A Mac's GPU, with the functions of the recording device that it can have."""

    def gpu_stream(self) -> mx.Stream:
        return mx.default_stream(mx.gpu)

    def evaluate(self, arrays: list[mx.array]) -> None:
        mx.eval(arrays)
        record.kernels.append(load_extension().last_run()["path"].removeprefix("metal."))


@cache
def modules() -> tuple[ModuleType, Any]:
    """The extension and the device, both from one library, which is built first."""
    if IS_REAL:
        return load_extension(), RealDevice()
    need_this_platform()
    with build.one_at_a_time():
        build.configure()
        subprocess.run([build.tool("ninja"), "-C", build.BUILD, "--quiet", "metal_host"], check=True)
    (library,) = OUTPUT.glob("metal_host.*.so")
    loaded = []
    for name in ("_ext", "metal_device"):
        specification = importlib.util.spec_from_file_location(f"metal_host.{name}", library)
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        loaded.append(module)
    extension, device = loaded
    extension.load_library(mx.gpu, str(build.PACKAGE))
    device.on_compile(allow_everything)
    device.on_run(run)
    return extension, device


def allow_everything(kernel: str, source: str, constants: list[int]) -> int:
    return MOST_THREADS


@cache
def compiled(source: str, kernel: str) -> Kernel:
    header = SLOT_HEADERS.get(kernel.split("_")[0], "metal/kernels/fast_arguments.h")
    return Kernel(source, kernel, slot_header=header)


def run(
    name: str,
    source: str,
    constants: list[int],
    bound: list[tuple[int, int, int, bool]],
    arguments: dict[int, bytes],
    threadgroups: list[int],
    threads: list[int],
    temporaries: list[tuple[int, int]],
) -> None:
    """Run a kernel on the memory that is bound to its slots: (slot, address, bytes, writable)."""
    read = {address for _, address, _, writable in bound if not writable}
    written_slots = frozenset(slot for slot, _, _, writable in bound if writable)
    copies = sum(size for address, size in temporaries if address in read)
    allocated = sum(size for _, size in temporaries)
    slots = frozenset(slot for slot, *_ in bound)
    record.kernels.append(name)
    record.dispatches.append(
        Dispatch(
            name,
            tuple(constants),
            tuple(threadgroups),
            tuple(threads),
            arguments,
            written_slots,
            slots,
            allocated,
            copies,
        )
    )
    if not runs_kernels:
        return
    kernel = compiled(source, name)
    names = {slot: buffer for buffer, slot in kernel.slots.items()}
    memory = {names[slot]: memory_at(address, size) for slot, address, size, _ in bound}
    outputs = {names[slot] for slot, _, _, writable in bound if writable}
    for output in outputs:
        memory[output][:] = 0xFF  # NaN, to reveal what the kernel does not write
    plain = {names[slot]: np.frombuffer(content, np.uint8) for slot, content in arguments.items()}
    written, reports = kernel(
        tuple(threadgroups), tuple(threads), {**memory, **plain}, constants=tuple(constants)
    )
    assert written.keys() == outputs, "exactly the buffers that a kernel writes must be bound as outputs"
    for output, content in written.items():
        memory[output][:] = content
    record.barriers.append(kernel.barriers)
    record.reports += reports


@contextmanager
def record_only() -> Iterator[None]:
    """Dispatches are recorded but not run: results are undefined, and no size is too large."""
    global runs_kernels
    runs_kernels = False
    try:
        yield
    finally:
        runs_kernels = True


def memory_at(address: int, size: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def evaluate(*arrays: mx.array) -> Record:
    """Evaluate on the device, and return the record of this evaluation."""
    global record
    record = Record()
    modules()[1].evaluate(list(arrays))
    return record


def attention(*inputs: mx.array, **options: Any) -> tuple[mx.array, mx.array, Record]:
    """Output and log-sum-exp of the full binding on the GPU stream."""
    extension, device = modules()
    arrays = [*inputs, *(option for option in options.values() if isinstance(option, mx.array))]
    mx.eval(arrays)
    output, lse = extension.attention(*inputs, **options, on_fallback="error", stream=device.gpu_stream())
    return output, lse, evaluate(output, lse)


def explain(*inputs: mx.array, **options: Any) -> dict[str, Any]:
    extension, device = modules()
    return extension.explain_attention(*inputs, **options, stream=device.gpu_stream())
