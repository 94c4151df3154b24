"""Where weights lie: in one piece of memory, of whose large pages a processor has few to look up."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import mlx.core as mx

from ..extension import cpu_kernels
from .header import Tensor

DTYPES = {"U32": mx.uint32, "F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}


def read_arrays(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, mx.array]]:
    """The tensors of safetensors files, in their order, each read into its place: nothing is held twice."""
    paths = {tensor.file for tensor in tensors.values()}
    native = cpu_kernels(mx.float32)
    if native is None:
        # MLX reads an array when it is evaluated. The hub's cache keeps files under names without an ending.
        arrays: dict[Path, Any] = {path: mx.load(str(path), format="safetensors") for path in paths}
        for name, tensor in tensors.items():
            array = arrays[tensor.file].pop(name)
            mx.eval(array)
            yield name, array
        return
    memory = native.WeightMemory([tensor.nbytes for tensor in tensors.values()])
    with ExitStack() as stack:
        files = {path: stack.enter_context(path.open("rb")) for path in paths}
        begins = {path: 8 + int.from_bytes(file.read(8), "little") for path, file in files.items()}
        for name, tensor in tensors.items():
            file, begin = files[tensor.file].fileno(), begins[tensor.file] + tensor.begin
            yield name, memory.read(file, begin, tensor.shape, DTYPES[tensor.dtype])


def evaluated(arrays: dict[str, mx.array]) -> Iterator[tuple[str, mx.array]]:
    """Arrays that are not evaluated yet, in their order, each into its place; `arrays` is empty then."""
    native = cpu_kernels(mx.float32)
    memory = None if native is None else native.WeightMemory([array.nbytes for array in arrays.values()])
    for name in list(arrays):
        array = arrays.pop(name)
        mx.eval(array)
        yield name, array if memory is None else memory.copy(array)
