"""The graph that an evaluation on a GPU would run, built on a machine without one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx

FUSED_HEAD_SIZES = (64, 80, 96, 128, 256)  # of MLX's fused attention


class Blanks:
    """An evaluated array for each fused operation, by the name of its primitive and a number.

    In the graph, a `Depends` on the blank and on the inputs stands for the fused primitive.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, mx.array] = {}

    def put(
        self, primitive: str, shape: tuple[int, ...], dtype: mx.Dtype, inputs: list[mx.array]
    ) -> mx.array:
        """The result of one primitive: an array of that shape, which contains zeros."""
        blank = mx.zeros(shape, dtype)
        mx.eval(blank)
        self.arrays[f"{primitive}_{len(self.arrays)}"] = blank
        result: mx.array = mx.depends([blank], inputs)[0]
        return result

    def rms_norm(self, x: mx.array, weight: mx.array | None, eps: float, **_: Any) -> mx.array:
        dtype = x.dtype if weight is None else mx.result_type(x, weight)
        inputs = [array.astype(dtype) for array in (x, weight) if array is not None]
        return self.put("RMSNorm", x.shape, dtype, inputs)

    def rope(
        self, a: mx.array, dims: int, *, offset: int | mx.array, freqs: mx.array | None = None, **_: Any
    ) -> mx.array:
        inputs = [a]
        if isinstance(offset, mx.array):
            inputs.append(offset if offset.itemsize == 4 else offset.astype(mx.int32))
        if freqs is not None:
            inputs.append(freqs.astype(mx.float32))
        return self.put("RoPE", a.shape, a.dtype, inputs)

    def scaled_dot_product_attention(
        self,
        q: mx.array,
        k: mx.array,
        v: mx.array,
        *,
        mask: str | mx.array | None = None,
        sinks: mx.array | None = None,
        **_: Any,
    ) -> mx.array:
        if q.shape[-1] not in FUSED_HEAD_SIZES:
            raise ValueError(
                f"scaled_dot_product_attention: q: got head size {q.shape[-1]}, "
                f"expected one that a GPU computes fused: {', '.join(map(str, FUSED_HEAD_SIZES))}"
            )
        dtype = mx.result_type(q, k, v)
        inputs = [array.astype(dtype) for array in (q, k, v, sinks) if array is not None]
        if isinstance(mask, mx.array):
            typed = mask if mask.dtype == mx.bool_ else mask.astype(dtype)
            inputs.append(mx.broadcast_to(typed, (*q.shape[:-1], k.shape[-2])))
        shape = (*q.shape[:-1], v.shape[-1])
        return self.put("ScaledDotProductAttention", shape, dtype, inputs)

    def dequantize(
        self,
        w: mx.array,
        scales: mx.array,
        biases: mx.array | None = None,
        group_size: int | None = None,
        bits: int | None = None,
        mode: str = "affine",
        global_scale: mx.array | None = None,
        dtype: mx.Dtype | None = None,
        **_: Any,
    ) -> mx.array:
        if mode != "affine" or bits is None:
            raise ValueError(f"dequantize: mode, bits: got {mode!r}, {bits}, expected 'affine' and a number")
        inputs = [array for array in (w, scales, biases) if array is not None]
        shape = (*w.shape[:-1], w.shape[-1] * 32 // bits)
        return self.put("Quantize", shape, scales.dtype if dtype is None else dtype, inputs)


@contextmanager
def gpu_graphs() -> Iterator[dict[str, mx.array]]:
    """A block in which MLX's fused operations are one primitive each, for graphs that are only counted.

    On the CPU MLX composes them from other operations. Yields `Blanks.arrays`, which name the primitives in
    an exported graph; on a GPU, where MLX makes the primitives itself, there are none. A function that
    `mx.compile` traced in the block keeps the blanks, so the process should end after counting.
    """
    blanks = Blanks()
    if mx.default_device() == mx.Device(mx.gpu):
        yield blanks.arrays
        return
    fast = ("rms_norm", "rope", "scaled_dot_product_attention")
    modules: dict[str, Any] = {**dict.fromkeys(fast, mx.fast), "dequantize": mx}
    originals = {name: getattr(module, name) for name, module in modules.items()}
    try:
        for name, module in modules.items():
            setattr(module, name, getattr(blanks, name))
        yield blanks.arrays
    finally:
        for name, module in modules.items():
            setattr(module, name, originals[name])
