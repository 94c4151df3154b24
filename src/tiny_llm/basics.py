"""The functions every layer is made of: softmax, the linear map and the SiLU activation."""

import sys

import mlx.core as mx

from .extension import cpu_kernels


def softmax(x: mx.array, axis: int) -> mx.array:
    """Turn `x` (any shape) into weights that add up to 1 along `axis`; same shape and dtype.

    A slice that is -inf throughout has no weights to give and becomes NaN.
    """
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"softmax: axis: got {axis}, expected an axis of shape {x.shape}")
    if x.shape[axis] == 0:
        return x
    wide = as_float32(x, "softmax: x")
    # exp overflows from 89 on. Subtracting the maximum leaves the quotient as it is and every exponent <= 0.
    exp = mx.exp(wide - wide.max(axis=axis, keepdims=True))
    return (exp / exp.sum(axis=axis, keepdims=True)).astype(x.dtype)


def linear(x: mx.array, w: mx.array, bias: mx.array | None = None) -> mx.array:
    """Map `x` [..., I] through the weights `w` [O, I] and the optional `bias` [O] to [..., O].

    Our kernel does it on the CPU once it is built; sums are float32 and rounded once. Elsewhere, and for
    integers and mixed types, it is `mx.matmul`, so on a Mac's CPU it is Accelerate.
    """
    if w.ndim != 2:
        raise ValueError(f"linear: w: got shape {w.shape}, expected (O, I)")
    outputs, inputs = w.shape
    if x.ndim == 0 or x.shape[-1] != inputs:
        raise ValueError(f"linear: x: got shape {x.shape}, expected (..., {inputs}) for w {w.shape}")
    if bias is not None and bias.shape != (outputs,):
        raise ValueError(f"linear: bias: got shape {bias.shape}, expected ({outputs},) for w {w.shape}")
    # On a Mac, MLX's product on the CPU is Accelerate's.
    native = None if sys.platform == "darwin" else cpu_kernels(x.dtype)
    if native is None or any(array.dtype != x.dtype for array in (w, bias) if array is not None):
        product = mx.matmul(x, w.T)
        return product if bias is None else product + bias
    return native.linear(x, w, bias)  # type: ignore[no-any-return]


def silu(x: mx.array) -> mx.array:
    """Compute x * sigmoid(x) element by element; same shape and dtype."""
    wide = as_float32(x, "silu: x")
    # For large negative x, exp overflows to inf and the quotient is -0: this form needs no special case.
    return (wide / (1 + mx.exp(-wide))).astype(x.dtype)


def silu_multiply(gate: mx.array, up: mx.array) -> mx.array:
    """Compute silu(gate) * up for two arrays of one shape and dtype: what the gate lets through."""
    native = cpu_kernels(gate.dtype) if (gate.shape, gate.dtype) == (up.shape, up.dtype) else None
    product: mx.array = silu(gate) * up if native is None else native.silu_multiply(gate, up)
    return product


def as_float32(x: mx.array, name: str) -> mx.array:
    """Return `x` in the type that layers calculate in. Integers are refused: rounding would ruin them."""
    if not mx.issubdtype(x.dtype, mx.floating):
        raise TypeError(f"{name}: got {x.dtype}, expected a floating point array")
    return x.astype(mx.float32)
