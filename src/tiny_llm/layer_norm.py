"""Root mean square normalisation: the layer norm of Qwen2."""

import mlx.core as mx

from .checks.arrays import check_floats
from .checks.types import check_number, check_size
from .errors import ArgumentError
from .ops.fused import fused_operations


class RMSNorm:
    """Divide each vector of size `dim` by its root mean square, then scale it by `weight` [dim]."""

    def __init__(self, dim: int, weight: mx.array, eps: float = 1e-5):
        check_size("RMSNorm", "dim", dim)
        check_floats("RMSNorm", weight=weight)
        check_number("RMSNorm", "eps", eps)
        if weight.shape != (dim,):
            raise ArgumentError("RMSNorm", "weight", weight.shape, f"({dim},)")
        self.dim = dim
        self.weight = weight
        self.eps = eps

    def __call__(self, x: mx.array) -> mx.array:
        """Normalise `x` [..., dim] over its last axis; same shape and dtype."""
        check_floats("RMSNorm", x=x)
        if x.ndim == 0 or x.shape[-1] != self.dim:
            raise ArgumentError("RMSNorm", "x", x.shape, f"(..., {self.dim})")
        fused = fused_operations(x.dtype)
        return self._normalise(x) if fused is None else fused.rms_norm(x, self.weight, self.eps)

    def _normalise(self, x: mx.array) -> mx.array:
        # float16 overflows at the square of 256, so all of this is float32, rounded once at the end.
        wide = x.astype(mx.float32)
        mean_square = mx.mean(mx.square(wide), axis=-1, keepdims=True)
        normalised = wide * mx.rsqrt(mean_square + self.eps)
        return (normalised * self.weight.astype(mx.float32)).astype(x.dtype)
