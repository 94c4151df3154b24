"""The checks of products with packed weights: the same on every device."""

import mlx.core as mx

from ..checks.arrays import (
    check_arrays,
    check_float_dtype,
    check_same_dtype,
    check_shape,
    wrong_dtype,
)
from ..checks.types import check_int
from ..errors import ArgumentError

GROUP_SIZES = (32, 64, 128)
BITS = (4, 8)


def check_product(
    function: str, scales: mx.array, biases: mx.array, group_size: int, bits: int, **operands: mx.array
) -> None:
    """`operands`: the activations [..., I] and the packed matrix [O, I * bits / 32], named as in the call."""
    check_arrays(function, scales=scales, biases=biases, **operands)
    for argument, given, known in (("group_size", group_size, GROUP_SIZES), ("bits", bits, BITS)):
        check_int(function, argument, given)
        if given not in known:
            raise ArgumentError(function, argument, given, f"one of {', '.join(map(str, known))}")
    (activations, x), (matrix, w) = operands.items()
    check_float_dtype(function, activations, x.dtype)
    if w.dtype != mx.uint32:
        raise wrong_dtype(function, matrix, w.dtype, "uint32")
    groups = {"scales": scales, "biases": biases}
    for argument, array in groups.items():
        check_same_dtype(function, argument, array.dtype, x.dtype, activations)
    if x.ndim == 0 or x.shape[-1] % group_size != 0:
        raise ArgumentError(function, activations, x.shape, f"(..., I) with I a multiple of {group_size}")
    inputs = x.shape[-1]
    check_shape(function, matrix, w.shape, ("O", inputs * bits // 32))
    for argument, array in groups.items():
        check_shape(function, argument, array.shape, (w.shape[0], inputs // group_size))
