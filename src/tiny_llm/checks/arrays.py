"""Checks of arrays: type, dtype and shape."""

import mlx.core as mx

from ..errors import ArgumentError, ArgumentTypeError
from .types import kind

FLOAT_DTYPES = (mx.float32, mx.float16, mx.bfloat16)  # of activations and of the native kernels


def dtype_name(dtype: mx.Dtype) -> str:
    """The name without "mlx.core.", as in the errors of the native functions."""
    return str(dtype).removeprefix("mlx.core.")


def wrong_dtype(function: str, argument: str, dtype: mx.Dtype, expected: str) -> ArgumentError:
    """The error of an array of a wrong dtype."""
    return ArgumentError(function, argument, dtype_name(dtype), expected)


def check_float_dtype(function: str, argument: str, dtype: mx.Dtype) -> None:
    """One of `FLOAT_DTYPES`."""
    if dtype not in FLOAT_DTYPES:
        raise wrong_dtype(function, argument, dtype, "float32, float16 or bfloat16")


def check_same_dtype(function: str, argument: str, dtype: mx.Dtype, expected: mx.Dtype, owner: str) -> None:
    """The dtype of another argument, `owner`."""
    if dtype != expected:
        raise wrong_dtype(function, argument, dtype, f"{dtype_name(expected)}, the dtype of {owner}")


def check_arrays(function: str, **arrays: object) -> None:
    for name, argument in arrays.items():
        _array(function, name, argument)


def check_floats(function: str, **arrays: object) -> None:
    """Arrays of floating point numbers."""
    for name, argument in arrays.items():
        array = _array(function, name, argument)
        if not mx.issubdtype(array.dtype, mx.floating):
            raise wrong_dtype(function, name, array.dtype, "a floating point type")


def check_integers(function: str, **arrays: object) -> None:
    """Arrays of integers."""
    for name, argument in arrays.items():
        array = _array(function, name, argument)
        if not mx.issubdtype(array.dtype, mx.integer):
            raise wrong_dtype(function, name, array.dtype, "an integer type")


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
        raise ArgumentTypeError(function, name, kind(argument), "an mlx array")
    return argument
