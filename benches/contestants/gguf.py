"""A writer of GGUF, the file format of llama.cpp: header, metadata, list of tensors, data of the tensors.

Everything is little-endian. The data of each tensor starts at a multiple of ALIGNMENT after the list.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

MAGIC, VERSION, ALIGNMENT = b"GGUF", 3, 32
Scalar = str | int | float
Value = Scalar | Sequence[str] | Sequence[int]
# Type numbers of metadata, and of tensor elements.
UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9
F32, Q4_0 = 0, 2

BLOCK = 32  # elements of Q4_0 with one scale
BLOCK_BYTES = 2 + BLOCK // 2


@dataclass(frozen=True, slots=True)
class Tensor:
    """A matrix or a vector: `shape` in elements, rows first, and its bytes."""

    name: str
    shape: tuple[int, ...]
    kind: int
    data: NDArray[np.uint8]


def vector(name: str, values: NDArray[np.float32]) -> Tensor:
    return Tensor(name, values.shape, F32, np.ascontiguousarray(values, "<f4").view(np.uint8))


def packed(name: str, numbers: NDArray[np.uint8], scales: NDArray[np.float16]) -> Tensor:
    """A matrix of Q4_0: element [r, c] is (numbers[r, c] - 8) * scales[r, c // 32].

    A block is a scale in float16 and 16 bytes: byte j has element j in its low half and j + 16 in its high
    half.
    """
    rows, columns = numbers.shape
    halves = numbers.reshape(rows, columns // BLOCK, 2, BLOCK // 2)
    blocks = np.empty((rows, columns // BLOCK, BLOCK_BYTES), np.uint8)
    blocks[..., :2] = np.ascontiguousarray(scales, "<f2")[..., None].view(np.uint8)
    blocks[..., 2:] = halves[:, :, 0] | halves[:, :, 1] << 4
    return Tensor(name, (rows, columns), Q4_0, blocks.reshape(-1))


def write(path: Path, metadata: Mapping[str, Value], tensors: Iterable[Tensor]) -> None:
    found = list(tensors)
    with path.open("wb") as file:
        file.write(MAGIC + struct.pack("<IQQ", VERSION, len(found), len(metadata)))
        for name, value in metadata.items():
            file.write(_string(name) + _value(value))
        offset = 0
        for tensor in found:
            sizes = tensor.shape[::-1]  # the format lists the innermost dimension first
            file.write(_string(tensor.name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes))
            file.write(struct.pack("<IQ", tensor.kind, offset))
            offset += -(-tensor.data.size // ALIGNMENT) * ALIGNMENT
        _align(file)
        for tensor in found:
            tensor.data.tofile(file)
            _align(file)


def _align(file: BinaryIO) -> None:
    file.write(bytes(-file.tell() % ALIGNMENT))


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _value(value: Value) -> bytes:
    """The type of a value, and the value. All elements of an array have the type of the first.

    llama.cpp reads sizes as unsigned numbers, and arrays of numbers as signed ones.
    """
    if isinstance(value, str | int | float):
        return struct.pack("<I", _type(value)) + _scalar(value)
    kind = INT32 if isinstance(value[0], int) else _type(value[0])
    return struct.pack("<IIQ", ARRAY, kind, len(value)) + b"".join(map(_scalar, value))


def _type(value: Scalar) -> int:
    return STRING if isinstance(value, str) else UINT32 if isinstance(value, int) else FLOAT32


def _scalar(value: Scalar) -> bytes:
    if isinstance(value, str):
        return _string(value)
    return struct.pack("<I", value) if isinstance(value, int) else struct.pack("<f", value)
