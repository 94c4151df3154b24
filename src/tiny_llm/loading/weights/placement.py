"""Where weights lie: packed words in one piece of memory, of whose large pages few have to be looked up."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import mlx.core as mx

from ...runtime.extension import cpu_kernels
from .header import Tensor

WORDS = "U32"
DTYPES = {WORDS: mx.uint32, "F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}


def read_arrays(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, mx.array]]:
    """The tensors of safetensors files, in their order, each read into its place: nothing is held twice.

    Words share a piece of memory. What is no word may be converted and dropped, one array at a time, so each
    of those has memory of its own.
    """
    native = cpu_kernels(mx.float32)
    paths = {tensor.file for tensor in tensors.values()}
    if native is None:
        # MLX reads an array when it is evaluated. The hub's cache keeps files under names without an ending.
        arrays: dict[Path, Any] = {path: mx.load(str(path), format="safetensors") for path in paths}
        for name, tensor in tensors.items():
            array = arrays[tensor.file].pop(name)
            mx.eval(array)
            yield name, array
        return
    words = native.WeightMemory([tensor.nbytes for tensor in tensors.values() if tensor.dtype == WORDS])
    with ExitStack() as stack:
        files = {path: stack.enter_context(path.open("rb")) for path in paths}
        for name, tensor in tensors.items():
            memory = words if tensor.dtype == WORDS else native.WeightMemory([tensor.nbytes])
            file = files[tensor.file].fileno()
            yield name, memory.read(file, tensor.begin, tensor.shape, DTYPES[tensor.dtype])


def evaluated(arrays: dict[str, mx.array]) -> Iterator[tuple[str, mx.array]]:
    """Arrays that are not evaluated yet, in their order, words in one place; `arrays` is empty then."""
    native = cpu_kernels(mx.float32)
    sizes = [array.nbytes for array in arrays.values() if array.dtype == mx.uint32]
    memory = None if native is None else native.WeightMemory(sizes)
    for name in list(arrays):
        array = arrays.pop(name)
        mx.eval(array)
        yield name, memory.copy(array) if memory is not None and array.dtype == mx.uint32 else array
