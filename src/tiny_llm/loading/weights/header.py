"""The header of a safetensors file, checked before its weights are read.

The parser of the package safetensors is no substitute: it accepts duplicate names, unknown fields, more
than 100,000 tensors, nine axes, and sizes beyond int32 (0.8.0, tried with the files of
tests/loading/test_bad_header.py).
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import LoadError
from ..files import check_beginning, parse_object

MAX_HEADER_BYTES = 2**24  # bytes; models of hundreds of layers need less than a tenth
MAX_TENSORS = 100_000
MAX_DIM = 2**31 - 1  # MLX counts the elements of an axis in int32
ITEM_SIZES = {
    **dict.fromkeys(["BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"], 1),
    **dict.fromkeys(["U16", "I16", "F16", "BF16"], 2),
    **dict.fromkeys(["U32", "I32", "F32"], 4),
    **dict.fromkeys(["U64", "I64", "F64", "C64"], 8),
}


class TensorEntry(NamedTuple):
    """An array in the bytes from `begin` to `end` of a file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.begin


def read_header(path: Path, name: str) -> dict[str, TensorEntry]:
    """The tensors of a file, which must fill it without a gap. `name` stands for the file in errors."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            check_beginning(start + file.read(32), name)
            if len(start) < 8 or size < 8 + length:
                raise LoadError(f"{name}: ends inside its header; the download is incomplete or damaged")
            if length > MAX_HEADER_BYTES:
                raise LoadError(f"{name}: header: got {length} bytes, expected at most {MAX_HEADER_BYTES}")
            file.seek(8)
            text = file.read(length).decode()
    except OSError as error:
        raise LoadError(f"{name}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LoadError(f"{name}: header: is not UTF-8 text; the file is damaged") from error
    entries = parse_object(text, f"{name}: header")
    entries.pop("__metadata__", None)
    if len(entries) > MAX_TENSORS:
        raise LoadError(f"{name}: header: got {len(entries)} tensors, expected at most {MAX_TENSORS}")
    tensors = {key: _tensor(entry, f"{name}: {key!r}", path) for key, entry in entries.items()}
    weights = 8 + length
    _check_extents(tensors, size - weights, name)
    return {key: it._replace(begin=weights + it.begin, end=weights + it.end) for key, it in tensors.items()}


def _tensor(entry: Any, where: str, path: Path) -> TensorEntry:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise LoadError(f"{where}: got other fields than dtype, shape and data_offsets; the file is damaged")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_SIZES:
        raise LoadError(f"{where}: dtype: got {dtype!r}, expected one of {', '.join(ITEM_SIZES)}")
    if not _sizes(shape) or any(size > MAX_DIM for size in shape) or len(shape) > 8:
        raise LoadError(f"{where}: shape: got {shape!r}, expected sizes from 0 to {MAX_DIM}")
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise LoadError(f"{where}: data_offsets: got {offsets!r}, expected a beginning and an end")
    needed = math.prod(shape) * ITEM_SIZES[dtype]
    if offsets[1] - offsets[0] != needed:
        raise LoadError(
            f"{where}: data_offsets: got {offsets[1] - offsets[0]} bytes, "
            f"expected {needed} for {dtype} {shape}"
        )
    return TensorEntry(path, dtype, tuple(shape), *offsets)


def _sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _check_extents(tensors: dict[str, TensorEntry], length: int, name: str) -> None:
    """Check that the tensors cover all `length` bytes without gaps and overlaps."""
    position = 0
    for key, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != position:
            how = "overlaps another tensor" if tensor.begin < position else "leaves a gap before it"
            raise LoadError(f"{name}: {key!r}: {how}; the file is damaged")
        position = tensor.end
    if position > length:
        raise LoadError(
            f"{name}: is cut off: got {length} bytes of weights, expected {position}; download it again"
        )
    if position < length:
        raise LoadError(f"{name}: has {length - position} bytes after its last tensor; the file is damaged")
