"""The argument structs of the attention kernels, and the memory of their tensors."""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_float, c_int32, c_int64

import mlx.core as mx
import numpy as np

UNBOUNDED = 1 << 30
ELEMENTS = {mx.float32: 0, mx.float16: 1, mx.bfloat16: 2}
MASK_KINDS = {None: 0, mx.bool_: 1, mx.float32: 2, mx.float16: 3, mx.bfloat16: 4}


class HeadStrides(Structure):
    _fields_ = tuple((name, c_int64) for name in ("batch", "head", "row"))


class MaskStrides(Structure):
    _fields_ = tuple((name, c_int64) for name in ("batch", "head", "row", "key"))


class LengthsInput(Structure):
    _fields_ = (("given", c_int32), ("stride", c_int32))


class ReadableArguments(Structure):
    """AttentionArguments of arguments.h."""

    _fields_ = (
        ("mask", MaskStrides),
        *((name, c_int32) for name in ("L", "S", "E", "heads", "group")),
        ("scale", c_float),
        ("causal", c_int32),
        ("mask_kind", c_int32),
    )


class FastArguments(Structure):
    """FastAttentionArguments of fast_arguments.h."""

    _fields_ = (
        ("query", HeadStrides),
        ("key", HeadStrides),
        ("value", HeadStrides),
        ("mask", MaskStrides),
        ("sinks_batch", c_int64),
        ("sinks_head", c_int64),
        *((name, c_int32) for name in ("N", "heads", "group", "L", "S", "E", "left", "right")),
        ("scale", c_float),
        ("softcap", c_float),
        ("keys_per_split", c_int32),
        ("q_lens", LengthsInput),
        ("kv_start", LengthsInput),
        ("kv_lens", LengthsInput),
    )


def as_bytes(structure: Structure) -> np.ndarray:
    return np.frombuffer(bytes(structure), np.uint8).copy()


def as_memory(x: mx.array) -> np.ndarray:
    """The array as NumPy; bfloat16, which NumPy lacks, as its bits."""
    return np.array(x.view(mx.uint16) if x.dtype == mx.bfloat16 else x)


def element_strides(array: np.ndarray, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an array broadcast to a shape, in elements: 0 along broadcast axes."""
    return tuple(stride // array.itemsize for stride in np.broadcast_to(array, shape).strides)


# Layouts of query, key and value: the shape of the memory, and the tensor as a view of it.
LAYOUTS = {
    "dense": (lambda B, H, L, E: (B, H, L, E), lambda memory, H, L: memory),
    "heads inside": (lambda B, H, L, E: (B, L, H, E), lambda memory, H, L: memory.swapaxes(1, 2)),
    "one of three": (
        lambda B, H, L, E: (B, L, 3 * H, E),
        lambda memory, H, L: memory[:, :, :H].swapaxes(1, 2),
    ),
    "a longer cache": (lambda B, H, L, E: (B, H, L + 5, E), lambda memory, H, L: memory[:, :, :L]),
}


def laid_out(x: mx.array, layout: str) -> tuple[np.ndarray, HeadStrides]:
    """The memory of a tensor [B, H, L, E] in a layout, NaN outside the tensor, and the tensor's strides."""
    data = as_memory(x)
    shape_of, tensor_in = LAYOUTS[layout]
    nan = np.nan if data.dtype.kind == "f" else 0x7FFF
    memory = np.full(shape_of(*x.shape), nan, data.dtype)
    tensor = tensor_in(memory, *x.shape[1:3])
    tensor[...] = data
    return memory, HeadStrides(*element_strides(tensor, x.shape)[:3])


def lengths(given: mx.array | None) -> tuple[np.ndarray, LengthsInput]:
    """The lengths of all batch entries, int32 or int64, as a buffer and its description."""
    if given is None:
        return np.zeros(1, np.int32), LengthsInput(0, 0)
    data = np.array(given)
    return data, LengthsInput(1, data.itemsize // ctypes.sizeof(c_int32))
