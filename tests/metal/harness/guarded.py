"""Buffers between inaccessible guard pages."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

GUARD = 1 << 20  # bytes on either side
ALIGNMENT = 16

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
FAILED = (None, ctypes.c_void_p(-1).value)  # what mmap returns


class GuardedBuffer:
    """A copy of an array that ends at the guard pages, up to alignment."""

    def __init__(self, content: np.ndarray):
        self._shape, self._dtype, self.nbytes = content.shape, content.dtype, content.nbytes
        body = -(-max(self.nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._size = body + 2 * GUARD
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._base = libc.mmap(None, self._size, 0, flags, -1, 0)
        if self._base in FAILED:
            raise MemoryError(f"no {self._size} bytes for a buffer")
        libc.mprotect(self._base + GUARD, body, mmap.PROT_READ | mmap.PROT_WRITE)
        end = self._base + GUARD + body
        self.address = (end - self.nbytes) // ALIGNMENT * ALIGNMENT
        ctypes.memmove(self.address, np.ascontiguousarray(content).ctypes.data, self.nbytes)

    def content(self) -> np.ndarray:
        array = np.empty(self._shape, self._dtype)
        ctypes.memmove(array.ctypes.data, self.address, self.nbytes)
        return array

    def free(self) -> None:
        libc.munmap(self._base, self._size)
