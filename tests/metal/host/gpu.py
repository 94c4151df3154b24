"""The extension on the GPU of a Mac; elsewhere on a device that takes notes, which the harness then runs."""

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
    """What the device was told about one kernel."""

    kernel: str
    constants: tuple[int, ...]
    threadgroups: tuple[int, ...]
    threads: tuple[int, ...]
    arguments: dict[int, bytes]  # by slot
    outputs: frozenset[int]  # the slots that were bound as such
    slots: frozenset[int]  # all that were bound
    temporaries: int  # bytes that were allocated for this kernel
    copies: int  # those of them that it reads


@dataclass
class Notes:
    """What the device was told to do, and what came of it."""

    kernels: list[str] = field(default_factory=list)
    dispatches: list[Dispatch] = field(default_factory=list)
    barriers: list[int] = field(default_factory=list)  # that threadgroups passed, for each kernel that ran
    reports: list[str] = field(default_factory=list)


notes = Notes()
runs_kernels = True


class RealDevice:
    """Answers as far as a real device can."""

    def gpu_stream(self) -> mx.Stream:
        return mx.default_stream(mx.gpu)

    def evaluate(self, arrays: list[mx.array]) -> None:
        mx.eval(arrays)
        notes.kernels.append(load_extension().last_run()["path"].removeprefix("metal."))


@cache
def modules() -> tuple[ModuleType, Any]:
    """The extension and the device, both of the one library that is built here."""
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
    notes.kernels.append(name)
    notes.dispatches.append(
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
        memory[output][:] = 0xFF  # NaN, for whoever reads what nobody wrote
    plain = {names[slot]: np.frombuffer(content, np.uint8) for slot, content in arguments.items()}
    written, reports = kernel(
        tuple(threadgroups), tuple(threads), {**memory, **plain}, constants=tuple(constants)
    )
    assert written.keys() == outputs, "what a kernel writes must be bound as an output, and nothing else"
    for output, content in written.items():
        memory[output][:] = content
    notes.barriers.append(kernel.barriers)
    notes.reports += reports


@contextmanager
def only_notes() -> Iterator[None]:
    """Kernels are noted and not run: results are undefined, and no size is too large."""
    global runs_kernels
    runs_kernels = False
    try:
        yield
    finally:
        runs_kernels = True


def memory_at(address: int, size: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def evaluate(*arrays: mx.array) -> Notes:
    """Evaluate on the device; returns the notes of this evaluation."""
    global notes
    notes = Notes()
    modules()[1].evaluate(list(arrays))
    return notes


def attention(*inputs: mx.array, **options: Any) -> tuple[mx.array, mx.array, Notes]:
    """Output and log-sum-exp of the full binding on the GPU stream."""
    extension, device = modules()
    arrays = [*inputs, *(option for option in options.values() if isinstance(option, mx.array))]
    mx.eval(arrays)
    output, lse = extension.attention(*inputs, **options, on_fallback="error", stream=device.gpu_stream())
    return output, lse, evaluate(output, lse)


def explain(*inputs: mx.array, **options: Any) -> dict[str, Any]:
    extension, device = modules()
    return extension.explain_attention(*inputs, **options, stream=device.gpu_stream())
