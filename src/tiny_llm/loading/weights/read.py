"""Weights from safetensors files into memory, once every tensor is known to be there and to fit.

Packed words (uint32) share one allocation: a decode step reads all of them, and a few huge pages take fewer
entries of the TLB than many arrays.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import mlx.core as mx

from ...runtime.extension import cpu_kernels
from ..config import ModelConfig
from ..errors import LoadError
from ..progress import Progress
from .header import TensorEntry
from .layout import check_tensors
from .memory import check_memory

WORDS = "U32"
DTYPES = {WORDS: mx.uint32, "F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}
REPORT = 2**26  # bytes that are read between two reports of progress


def load_weights(
    config: ModelConfig,
    tensors: Mapping[str, TensorEntry],
    progress: Progress,
    bytes_per_weight: float | None = None,
) -> dict[str, mx.array]:
    """The arrays of a model by name, read in file order after all checks against config and memory."""
    needed = check_tensors(config, tensors)
    total = sum(tensors[name].nbytes for name in needed)
    check_memory(config, total, bytes_per_weight)
    order = sorted(needed, key=lambda name: (tensors[name].file, tensors[name].begin))
    arrays: dict[str, mx.array] = {}
    done = reported = 0
    progress("loading weights", 0, total)
    try:
        for name, array in read_arrays({name: tensors[name] for name in order}):
            arrays[name] = array
            done += array.nbytes
            if done == total or done - reported >= REPORT:
                progress("loading weights", done, total)
                reported = done
    except (OSError, RuntimeError, ValueError) as error:
        raise LoadError(f"weights: cannot be read: {error}") from error
    return arrays


def read_arrays(tensors: Mapping[str, TensorEntry]) -> Iterator[tuple[str, mx.array]]:
    """The arrays of `tensors`, in their order, each read straight to its final memory: no byte is held twice.

    Each array that is not packed words has an allocation of its own, because it may be converted and dropped.
    For scales and biases that means small pages: the huge ones of the words gain most (benches/LOG.md, M5).
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


def copy_to_weight_memory(arrays: dict[str, mx.array]) -> Iterator[tuple[str, mx.array]]:
    """Evaluate arrays and copy words to weight memory; `arrays` is emptied, so that each graph is freed."""
    native = cpu_kernels(mx.float32)
    sizes = [array.nbytes for array in arrays.values() if array.dtype == mx.uint32]
    memory = None if native is None else native.WeightMemory(sizes)
    for name in list(arrays):
        array = arrays.pop(name)
        mx.eval(array)
        yield name, memory.copy(array) if memory is not None and array.dtype == mx.uint32 else array
