"""Weights from the safetensors files of a folder into memory, once every tensor is known to be there and fit.

Packed words (uint32) share one allocation: a decode step reads all of them, and a few huge pages take fewer
entries of the TLB than many arrays.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import mlx.core as mx

from ...errors import LoadError
from ...runtime.extension import cpu_kernels
from ..config import ModelConfig, Quantization
from ..files import MEBIBYTE, find_file, read_object, require_file
from ..progress import Progress
from .header import TensorEntry, read_header
from .layout import check_tensors, quantization_for
from .memory import check_memory
from .share import Slice, WeightShare, whole_model
from .widen import widen

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PLAIN_NAME = re.compile(r"\w[\w.-]*\.safetensors", re.ASCII)
# Other formats, and the advice for each.
OTHER_FORMATS = {
    "*.bin": "pickled weights, which could run code when read; convert them to safetensors",
    "*.pt*": "pickled weights, which could run code when read; convert them to safetensors",
    "*.gguf": "GGUF weights; take the safetensors edition of the model",
    "*.npz": "weights in the first format of MLX; convert them to safetensors",
    "*.safetensors": f"shards without their index, {INDEX}; download the model again",
}
WORDS = "U32"
DTYPES = {WORDS: mx.uint32, "F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}
REPORT = 2**26  # bytes that are read between two reports of progress


def shard_names(folder: Path) -> dict[str, str] | list[str]:
    """With an index, the file of each tensor; else a list with the only file."""
    index = find_file(folder, INDEX)
    if index is None:
        return [SINGLE]
    weight_map = read_object(index, INDEX, 16 * MEBIBYTE).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise LoadError(f"{INDEX}: weight_map: got {weight_map!r}, expected the file of each tensor")
    for name in weight_map.values():
        if not isinstance(name, str) or not PLAIN_NAME.fullmatch(name):
            raise LoadError(f"{INDEX}: weight_map: got {name!r}, expected the name of a safetensors file")
    return weight_map


def read_tensors(folder: Path) -> dict[str, TensorEntry]:
    """File and position of each tensor of the model, from the checked headers of all files."""
    names = shard_names(folder)
    if find_file(folder, SINGLE) is None and isinstance(names, list):
        for pattern, problem in OTHER_FORMATS.items():
            if any(folder.glob(pattern)):
                raise LoadError(f"{SINGLE}: is not in {folder}, which has {problem}")
    tensors: dict[str, TensorEntry] = {}
    located: dict[str, str] = {}
    for name in sorted(set(names.values() if isinstance(names, dict) else names)):
        path = require_file(folder, name, "the download is incomplete; download the model again")
        for key, tensor in read_header(path, name).items():
            if key in located:
                raise LoadError(f"{name}: {key!r}: is in {located[key]}, too; download the model again")
            tensors[key], located[key] = tensor, name
    if isinstance(names, dict) and names != located:
        key = min(key for key in names.keys() | located.keys() if names.get(key) != located.get(key))
        listed, found = names.get(key, "no file"), located.get(key, "no file")
        raise LoadError(f"{INDEX}: {key!r}: got {listed}, but {found} has it; download the model again")
    return tensors


def load_weights(
    config: ModelConfig,
    tensors: Mapping[str, TensorEntry],
    progress: Progress,
    bytes_per_weight: float | None = None,
    share: WeightShare | None = None,
) -> dict[str, mx.array]:
    """The arrays of a model, or of a share of it, by name, read in file order.

    All checks against config and memory come before.
    """
    share = share or whole_model(config)
    needed = [name for name in check_tensors(config, tensors) if name.rpartition(".")[0] in share.parts]
    slices = {name: share.slice_of(name, tensors[name].shape) for name in needed}
    narrow = {name: packing for name in needed if (packing := _narrow(config, name, tensors[name]))}
    total = sum(_bytes_in_memory(tensors[name], slices[name], narrow.get(name)) for name in needed)
    check_memory(share.weights(config), total, bytes_per_weight)
    order = sorted(needed, key=lambda name: (tensors[name].file, tensors[name].begin))
    arrays: dict[str, mx.array] = {}
    done = reported = 0
    progress("loading weights", 0, total)
    try:
        for name, array in read_arrays({name: tensors[name] for name in order}, slices, narrow):
            arrays[name] = array
            done += array.nbytes
            if done == total or done - reported >= REPORT:
                progress("loading weights", done, total)
                reported = done
    except (OSError, RuntimeError, ValueError) as error:
        raise LoadError(f"weights: cannot be read: {error}") from error
    return arrays


def read_arrays(
    tensors: Mapping[str, TensorEntry],
    slices: Mapping[str, Slice | None],
    narrow: Mapping[str, Quantization],
) -> Iterator[tuple[str, mx.array]]:
    """The arrays of `tensors`, in their order, each read straight to its final memory: no byte is held twice,
    but those of one slice, and of one of the `narrow` matrices, which are widened.

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
            part = slices[name]
            if part is not None:
                with tensor.file.open("rb") as opened:
                    array = read_slice(opened.fileno(), tensor, part)
            if name in narrow:
                array = widen(array, narrow[name])
            mx.eval(array)
            yield name, array
        return
    words = native.WeightMemory(
        [
            _bytes_in_memory(tensor, slices[name], narrow.get(name))
            for name, tensor in tensors.items()
            if tensor.dtype == WORDS
        ]
    )
    with ExitStack() as stack:
        files = {path: stack.enter_context(path.open("rb")) for path in paths}
        for name, tensor in tensors.items():
            part, file = slices[name], files[tensor.file].fileno()
            memory = words if tensor.dtype == WORDS else native.WeightMemory([_bytes_in_memory(tensor, part)])
            if name in narrow:
                some = read_slice(file, tensor, part or Slice(0, 0, tensor.shape[0], tensor.shape[0]))
                yield name, memory.copy(widen(some, narrow[name]))
            elif part is None:
                yield name, memory.read(file, tensor.begin, tensor.shape, DTYPES[tensor.dtype])
            else:
                yield name, memory.copy(read_slice(file, tensor, part))


def _narrow(config: ModelConfig, name: str, tensor: TensorEntry) -> Quantization | None:
    """The format of a matrix whose numbers have fewer bits than in memory; None for any other tensor."""
    packing = quantization_for(config, name.rpartition(".")[0]) if tensor.dtype == WORDS else None
    return None if packing is None or packing == packing.in_memory else packing


def _bytes_in_memory(tensor: TensorEntry, part: Slice | None, narrow: Quantization | None = None) -> int:
    size = tensor.nbytes
    if part is not None:
        size = size // tensor.shape[part.axis] * (part.stop - part.start)
    return size if narrow is None else size * narrow.in_memory.bits // narrow.bits


def read_slice(file: int, tensor: TensorEntry, part: Slice) -> mx.array:
    """A part of a tensor; no other byte of the file is read."""
    shape = list(tensor.shape)
    shape[part.axis] = part.stop - part.start
    dtype = DTYPES[tensor.dtype]
    data = memoryview(bytearray(math.prod(shape) * dtype.size))
    row = tensor.nbytes // tensor.shape[0]
    if part.axis == 0:
        pieces = [(tensor.begin + part.start * row, len(data))]
    else:
        entry = row // tensor.shape[1]
        first, length = tensor.begin + part.start * entry, shape[1] * entry
        pieces = [(first + number * row, length) for number in range(tensor.shape[0])]
    done = 0
    for begin, length in pieces:
        _read_into(file, data[done : done + length], begin)
        done += length
    words: Any = data.cast("I" if dtype.size == 4 else "H")
    return mx.array(words).view(dtype).reshape(shape)


def _read_into(file: int, data: memoryview, begin: int) -> None:
    while len(data):
        count = os.preadv(file, [data], begin)
        if count == 0:
            raise OSError("the file has become shorter")
        data, begin = data[count:], begin + count


def copy_to_weight_memory(arrays: dict[str, mx.array]) -> Iterator[tuple[str, mx.array]]:
    """Evaluate arrays and copy words to weight memory; `arrays` is emptied, so that each graph is freed."""
    native = cpu_kernels(mx.float32)
    sizes = [array.nbytes for array in arrays.values() if array.dtype == mx.uint32]
    memory = None if native is None else native.WeightMemory(sizes)
    for name in list(arrays):
        array = arrays.pop(name)
        mx.eval(array)
        yield name, memory.copy(array) if memory is not None and array.dtype == mx.uint32 else array
