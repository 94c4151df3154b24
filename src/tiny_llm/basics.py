"""The functions in every layer: softmax, the linear map and the SiLU activation."""

import sys

import mlx.core as mx

from .checks.arrays import check_floats, check_same_dtype, check_shape
from .checks.types import check_int
from .errors import ArgumentError
from .ops.fused import fused_operations
from .runtime.extension import cpu_kernels


def softmax(x: mx.array, axis: int) -> mx.array:
    """Turn `x` (any shape) into weights that add up to 1 along `axis`; same shape and dtype.

    A slice of -inf only becomes NaN.
    """
    check_floats("softmax", x=x)
    check_int("softmax", "axis", axis)
    if not -x.ndim <= axis < x.ndim:
        raise ArgumentError("softmax", "axis", axis, f"an axis of shape {x.shape}")
    if x.shape[axis] == 0:
        return x
    wide = x.astype(mx.float32)
    # exp overflows from 89 on. Subtracting the maximum leaves the quotient as it is and every exponent <= 0.
    exp = mx.exp(wide - wide.max(axis=axis, keepdims=True))
    return (exp / exp.sum(axis=axis, keepdims=True)).astype(x.dtype)


def linear(x: mx.array, w: mx.array, bias: mx.array | None = None) -> mx.array:
    """Map `x` [..., I] through the weights `w` [O, I] and the optional `bias` [O] to [..., O].

    All are floating point. On the CPU our kernel accumulates in float32 and rounds once. On a GPU, on a Mac
    (where it is Accelerate), for mixed dtypes and without the extension it is `mx.matmul`.
    """
    check_floats("linear", x=x, w=w)
    if bias is not None:
        check_floats("linear", bias=bias)
    if w.ndim != 2:
        raise ArgumentError("linear", "w", w.shape, "(O, I)")
    outputs, inputs = w.shape
    if x.ndim == 0 or x.shape[-1] != inputs:
        raise ArgumentError("linear", "x", x.shape, f"(..., {inputs}) for w {w.shape}")
    if bias is not None and bias.shape != (outputs,):
        raise ArgumentError("linear", "bias", bias.shape, f"({outputs},) for w {w.shape}")
    # On a Mac, MLX's product on the CPU is Accelerate's.
    native = None if sys.platform == "darwin" else cpu_kernels(x.dtype)
    if native is None or any(array.dtype != x.dtype for array in (w, bias) if array is not None):
        return mx.matmul(x, w.T) if bias is None else mx.addmm(bias, x, w.T)
    return native.linear(x, w, bias)  # type: ignore[no-any-return]


def silu(x: mx.array) -> mx.array:
    """Compute x * sigmoid(x) element by element; same shape and dtype."""
    check_floats("silu", x=x)
    wide = x.astype(mx.float32)
    # For large negative x, exp overflows to inf and the quotient is -0: this form needs no special case.
    return (wide / (1 + mx.exp(-wide))).astype(x.dtype)


def silu_multiply(gate: mx.array, up: mx.array) -> mx.array:
    """Compute silu(gate) * up, element by element, for two arrays of one shape and dtype."""
    check_floats("silu_multiply", gate=gate, up=up)
    check_shape("silu_multiply", "up", up.shape, gate.shape)
    check_same_dtype("silu_multiply", "up", up.dtype, gate.dtype, "gate")
    fused = fused_operations(gate.dtype)
    return silu(gate) * up if fused is None else fused.silu_multiply(gate, up)
