"""Memory that a kernel uses in place; it may be larger than that of the machine."""

from __future__ import annotations

import mmap

import numpy as np

from .guarded import FAILED, libc

NO_RESERVE = 0x4000  # MAP_NORESERVE: a page exists once it is touched


class BorrowedBuffer:
    """Memory with another owner, used in place."""

    def __init__(self, address: int, nbytes: int):
        self.address, self.nbytes = address, nbytes

    def content(self) -> BorrowedBuffer:
        return self

    def free(self) -> None:
        """The owner frees it."""


class SparseBuffer(BorrowedBuffer):
    """Zeros whose pages exist only once they are touched; its owner calls `release`."""

    def __init__(self, count: int, dtype: type[np.generic] | np.dtype):
        self.dtype = np.dtype(dtype)
        self._size = max(count * self.dtype.itemsize, 1)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
        base = libc.mmap(None, self._size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if base in FAILED:
            raise MemoryError(f"no addresses for {self._size} bytes")
        super().__init__(base, count * self.dtype.itemsize)
        raw = (np.ctypeslib.ctypes.c_uint8 * self._size).from_address(base)
        self.elements = np.frombuffer(raw, self.dtype, count)

    def release(self) -> None:
        libc.munmap(self.address, self._size)
