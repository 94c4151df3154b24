"""Layers as one operation each: our kernel on the CPU, MLX's on a GPU.

Where neither is at hand, a layer runs its readable form.
"""

from functools import lru_cache, partial
from types import ModuleType
from typing import Protocol

import mlx.core as mx

from ..runtime.extension import cpu_kernels
from ..runtime.gpu import computes_on_gpu
from .rope_scaling import RopeScaling


class Rotation(Protocol):
    """What the operations read of a RoPE layer."""

    dims: int
    base: float
    traditional: bool
    scaling: RopeScaling | None

    def table(self, starts: int | list[int], length: int) -> "Table": ...

    def by_table(self, x: mx.array, starts: int | list[int]) -> mx.array:
        """The readable form: [N, S, H, D] -> [N, S, H, D]."""


class Table(Protocol):
    cos: mx.array
    sin: mx.array


class FusedOperations(Protocol):
    """The operations of a device. Arguments were checked by the layers."""

    def rms_norm(self, x: mx.array, weight: mx.array, eps: float) -> mx.array:
        """[..., dim] -> [..., dim]."""

    def rope(self, x: mx.array, rotation: Rotation, starts: int | list[int]) -> mx.array:
        """[N, S, H, D] -> [N, H, S, D]; row b begins at position starts[b]."""

    def silu_multiply(self, gate: mx.array, up: mx.array) -> mx.array:
        """silu(gate) * up."""


def fused_operations(dtype: mx.Dtype) -> FusedOperations | None:
    """Those of MLX's default device; None on a CPU without kernels for `dtype`."""
    if computes_on_gpu():
        return ON_GPU
    kernels = cpu_kernels(dtype)
    return None if kernels is None else OnCpu(kernels)


class OnCpu:
    """The kernels of `tiny_llm_ext`."""

    def __init__(self, kernels: ModuleType):
        self.rms_norm = kernels.rms_norm
        self.silu_multiply = kernels.silu_multiply
        self._rope = partial(kernels.rope, heads_first=True)

    def rope(self, x: mx.array, rotation: Rotation, starts: int | list[int]) -> mx.array:
        table = rotation.table(starts, x.shape[1])
        rotated: mx.array = self._rope(x, table.cos, table.sin, starts, traditional=rotation.traditional)
        return rotated


class OnGpu:
    """MLX's fused operations."""

    def rms_norm(self, x: mx.array, weight: mx.array, eps: float) -> mx.array:
        return mx.fast.rms_norm(x, weight, eps).astype(x.dtype)  # MLX computes in the wider type of the two

    def rope(self, x: mx.array, rotation: Rotation, starts: int | list[int]) -> mx.array:
        # MLX for CUDA gives wrong results for an input with a broadcast axis, so it gets a contiguous one.
        return self.rotate(mx.contiguous(x.swapaxes(1, 2)), rotation, starts)

    def rotate(self, x: mx.array, rotation: Rotation, starts: int | list[int]) -> mx.array:
        """As `rope`, from [N, H, S, D]; no axis may be broadcast."""
        if x.dtype == mx.float32:
            # The angles of MLX are float32 numbers: at position 32767, results were off by 7e-3.
            return rotation.by_table(x.swapaxes(1, 2), starts).swapaxes(1, 2)
        scaling = rotation.scaling
        return mx.fast.rope(
            x if scaling is None else x * scaling.attention_factor,
            rotation.dims,
            traditional=rotation.traditional,
            base=rotation.base if scaling is None else None,
            scale=1.0,
            offset=_row_starts(tuple(starts)) if isinstance(starts, list) else starts,
            freqs=None if scaling is None else _inverse_frequencies(scaling, rotation.dims, rotation.base),
        )

    def silu_multiply(self, gate: mx.array, up: mx.array) -> mx.array:
        return _silu_multiply(gate, up)


ON_GPU = OnGpu()


@lru_cache(maxsize=2)
def _row_starts(starts: tuple[int, ...]) -> mx.array:
    """The array of a step of a batch, which all layers share."""
    return mx.array(starts, mx.int32)


@lru_cache(maxsize=2)
def _inverse_frequencies(scaling: RopeScaling, dims: int, base: float) -> mx.array:
    """What MLX calls `freqs`."""
    return mx.array([1 / frequency for frequency in scaling.frequencies(dims, base)], mx.float32)


@partial(mx.compile, shapeless=True)
def _silu_multiply(gate: mx.array, up: mx.array) -> mx.array:
    """One kernel; without `compile` it would be three."""
    return gate * mx.sigmoid(gate) * up
