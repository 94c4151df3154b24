"""Runs a Metal kernel on NumPy arrays and reports its mistakes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .guarded import GuardedBuffer
from .signature import signatures
from .sparse import BorrowedBuffer
from .toolchain import build, compiler_for

LANES = 32
MOST_THREADS = 1024
NO_VALUE = 0x5EED  # value of a function constant that was not given


class Constant(ctypes.Structure):
    """A function constant: its index and its variable."""

    _fields_ = (("index", ctypes.c_int), ("value", ctypes.POINTER(ctypes.c_int)))


class Run(NamedTuple):
    """The buffers that the kernel may write, by name, and reports of its mistakes."""

    outputs: dict[str, Any]
    reports: list[str]


class Kernel:
    """A kernel of a Metal source, compiled so that every memory access is checked."""

    def __init__(
        self, source: str, name: str, *, slot_header: str | None = None, compiler: str | None = None
    ):
        (self.signature,) = [signature for signature in signatures(source) if signature.name == name]
        built = build(source, self.signature, compiler_for(self.signature, compiler), slot_header)
        self.threadgroup_bytes = built.threadgroup_bytes
        self._library = ctypes.CDLL(str(built.path))
        base = ctypes.cast(self._library.harness_dispatch, ctypes.c_void_p).value - built.anchor
        for array, offset, size in built.arrays:
            self._library.harness_array(
                array.encode(), ctypes.c_uint64(offset), ctypes.c_uint64(size), ctypes.c_void_p(base)
            )
        buffers = self.signature.buffers
        numbers = (ctypes.c_int * len(buffers)).in_dll(self._library, "harness_slots")
        self._library.harness_barriers.restype = ctypes.c_uint64
        self.barriers = 0  # in the last run, over all threadgroups
        self.slots = {buffer.name: number for buffer, number in zip(buffers, numbers, strict=True)}
        count = len(self.signature.constants)
        self._constants = (Constant * count).in_dll(self._library, "harness_constants")

    def __call__(
        self,
        threadgroups: tuple[int, int, int],
        threads: tuple[int, int, int],
        buffers: Mapping[str, np.ndarray | BorrowedBuffer],
        *,
        order: int = 0,
        constants: Sequence[int] = (),
        positions: Sequence[tuple[int, int, int]] | None = None,
    ) -> Run:
        """Run a grid with these function constants, by index, or none if the kernel has none.

        `order` of lanes and SIMD groups: 0 as numbered, 1 reversed, others shuffled. With `positions`, only
        the threadgroups there run. The kernel works on copies of arrays.
        """
        count = threads[0] * threads[1] * threads[2]
        if count % LANES or not 0 < count <= MOST_THREADS:
            raise ValueError(f"{count} threads in a threadgroup: a multiple of {LANES} up to {MOST_THREADS}")
        if buffers.keys() != self.slots.keys():
            raise ValueError(f"buffers {sorted(buffers)}, but the kernel takes {sorted(self.slots)}")
        if constants and len(constants) != len(self._constants):
            raise ValueError(
                f"{len(constants)} function constants, but the source has {len(self._constants)}"
            )
        for constant in self._constants:
            constant.value[0] = constants[constant.index] if constants else NO_VALUE
        memory = {
            name: content if isinstance(content, BorrowedBuffer) else GuardedBuffer(content)
            for name, content in buffers.items()
        }
        try:
            return self._run(in_grid(threadgroups, positions), count, memory, order)
        finally:
            for buffer in memory.values():
                buffer.free()

    def _run(
        self,
        positions: np.ndarray,
        count: int,
        memory: Mapping[str, GuardedBuffer | BorrowedBuffer],
        order: int,
    ) -> Run:
        self._library.harness_start(order)
        slots = (ctypes.c_void_p * (max(self.slots.values()) + 1))()
        writable = {buffer.name for buffer in self.signature.buffers if buffer.is_writable}
        for name, buffer in memory.items():
            slots[self.slots[name]] = buffer.address
            size, address = ctypes.c_uint64(buffer.nbytes), ctypes.c_void_p(buffer.address)
            self._library.harness_buffer(name.encode(), address, size, int(name in writable))
        where = ctypes.c_void_p(positions.ctypes.data)
        self._library.harness_dispatch(slots, where, ctypes.c_uint32(len(positions)), ctypes.c_uint32(count))
        self.barriers = self._library.harness_barriers()
        text = ctypes.create_string_buffer(1 << 16)
        self._library.harness_reports(text, ctypes.c_uint64(len(text)))
        return Run({name: memory[name].content() for name in writable}, text.value.decode().splitlines())


def in_grid(
    threadgroups: tuple[int, int, int], positions: Sequence[tuple[int, int, int]] | None
) -> np.ndarray:
    """These positions of a grid, or all positions, x first: uint32 [n, 3]."""
    if positions is None:
        z, y, x = np.indices(threadgroups[::-1], np.uint32).reshape(3, -1)
        return np.stack([x, y, z], axis=1)
    if not all(
        0 <= at < size for position in positions for at, size in zip(position, threadgroups, strict=True)
    ):
        raise ValueError(f"positions {positions} in a grid of {threadgroups}")
    return np.array(positions, np.uint32)
