"""Tensors with strides of more than 32 bits, in memory whose pages exist only once they are touched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import mlx.core as mx
import numpy as np

from ..attention.arguments import as_memory
from ..harness.sparse import SparseBuffer


class Memory:
    """Sparse buffers that are released together."""

    def __init__(self) -> None:
        self._buffers: list[SparseBuffer] = []

    def zeros(self, count: int, dtype: type[np.generic] | np.dtype) -> SparseBuffer:
        buffer = SparseBuffer(count, dtype)
        self._buffers.append(buffer)
        return buffer

    def laid_out(self, x: mx.array, strides: Sequence[int], first: int = 0) -> SparseBuffer:
        """A buffer with this tensor from element `first` on; strides are in elements."""
        data = as_memory(x)
        last = first + sum((size - 1) * stride for size, stride in zip(data.shape, strides, strict=True))
        buffer = self.zeros(last + 1, data.dtype)
        in_bytes = [stride * data.itemsize for stride in strides]
        np.lib.stride_tricks.as_strided(buffer.elements[first:], data.shape, in_bytes)[...] = data
        return buffer

    def free(self) -> None:
        for buffer in self._buffers:
            buffer.release()


@contextmanager
def memory() -> Iterator[Memory]:
    found = Memory()
    try:
        yield found
    finally:
        found.free()


def tail(buffer: SparseBuffer, count: int, dtype: mx.Dtype = mx.float32) -> mx.array:
    """The last elements of a buffer."""
    return mx.array(np.array(buffer.elements[-count:])).view(dtype)
