"""Checks of arrays: type, dtype and shape."""

import mlx.core as mx

from ..errors import ArgumentError, ArgumentTypeError

FLOAT_DTYPES = (mx.float32, mx.float16, mx.bfloat16)  # of activations and of the native kernels


def check_arrays(function: str, **arrays: object) -> None:
    for name, argument in arrays.items():
        _array(function, name, argument)


def check_floats(function: str, **arrays: object) -> None:
    """Arrays of floating point numbers."""
    for name, argument in arrays.items():
        array = _array(function, name, argument)
        if not mx.issubdtype(array.dtype, mx.floating):
            raise ArgumentTypeError(function, name, array.dtype, "a floating point array")


def check_shape(
    function: str, argument: str, shape: tuple[int, ...], expected: tuple[int | str, ...]
) -> None:
    """Compare sizes. A string in `expected` names a size that may have any value."""
    fits = len(shape) == len(expected) and all(
        isinstance(size, str) or given == size for given, size in zip(shape, expected, strict=True)
    )
    if not fits:
        sizes = ", ".join(map(str, expected)) + "," * (len(expected) == 1)
        raise ArgumentError(function, argument, shape, f"({sizes})")


def _array(function: str, name: str, argument: object) -> mx.array:
    if not isinstance(argument, mx.array):
        raise ArgumentTypeError(function, name, type(argument).__name__, "an mlx array")
    return argument
