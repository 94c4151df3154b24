"""Integers that the host knows, from lists, NumPy or MLX arrays, for objects that are checked once."""

from array import array
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from ..checks.types import kind
from ..errors import ArgumentError, ArgumentTypeError

Integers = mx.array | Sequence[int] | Any  # anything with `tolist`, such as an array of NumPy


def read_integers(operation: str, argument: str, given: Integers) -> "array[int]":
    """As 32-bit integers. An MLX array is evaluated."""
    numbers = read_list(operation, argument, given)
    try:
        if bool in map(type, numbers):
            raise TypeError
        return array("i", numbers)
    except TypeError:
        raise ArgumentTypeError(operation, argument, _shown(given), "integers") from None
    except OverflowError:
        wrong = next(number for number in numbers if not -(2**31) <= number < 2**31)
        raise ArgumentError(operation, argument, wrong, "integers of 32 bits") from None


def read_list(operation: str, argument: str, given: Any) -> Sequence[Any]:
    """The elements of a sequence or an array; those of an array of two axes are lists."""
    elements = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(elements, str | bytes) or not isinstance(elements, Sequence):
        raise ArgumentTypeError(operation, argument, _shown(given), "a list or an array of integers")
    return elements


def read_cumulative(operation: str, argument: str, given: Integers) -> "array[int]":
    """Numbers of rows before each sequence, then of all: from 0 on, never less than the one before."""
    rows = read_integers(operation, argument, given)
    if not rows:
        raise ArgumentError(operation, argument, "no number", "0 first")
    if rows[0] != 0:
        raise ArgumentError(operation, argument, f"{rows[0]} at position 0", "0")
    for i in range(1, len(rows)):
        if rows[i] < rows[i - 1]:
            expected = f"at least {rows[i - 1]}, the number before it"
            raise ArgumentError(operation, argument, f"{rows[i]} at position {i}", expected)
    return rows


def to_mlx(numbers: "array[int]") -> mx.array:
    """An array [n] that is evaluated already."""
    return mx.array(numbers)  # type: ignore[arg-type]  # takes any buffer


def table_to_mlx(numbers: "array[int]", rows: int, width: int) -> mx.array:
    """An int32 array [rows, width] that is evaluated already."""
    if not numbers:  # a buffer has no axis of size 0
        return mx.zeros((rows, width), mx.int32)
    return mx.array(memoryview(numbers).cast("B").cast("i", (rows, width)))  # type: ignore[arg-type]


def _shown(given: object) -> str:
    if isinstance(given, mx.array):
        return f"an array of {str(given.dtype).removeprefix('mlx.core.')} with {given.ndim} axes"
    return repr(given) if isinstance(given, str) else kind(given)
