"""Work on rows of numbers, which the memory limits: norms, gates, positions, look-ups and choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from benches.cases.attention import DTYPES, SHORT_NAMES, Dtype
from benches.cases.products import GROUP_SIZE, MLX
from benches.contestants.attention import OURS, extension
from benches.harness.operation import Case, Operation, evaluated, exact, random_array, sampled
from tiny_llm.positional_encoding import RotationTable

Float64 = NDArray[np.float64]
EPS, BASE, BITS, TOP = 1e-6, 1e6, 4, 40
HIDDEN, INNER, HEADS, HEAD, VOCABULARY = 896, 4864, 14, 64, 151936  # of qwen2-0.5b
PROMPT, SEQUENCES = 512, 8  # rows where a prompt is read, and where some sequences choose
EXACT = 1e-9  # of indices
POSITION = 512  # of the first row


def row_cases() -> Iterator[Case]:
    for dtype in DTYPES:
        for name, (build, many) in KERNELS.items():
            for rows in (1, many):
                title = f"{SHORT_NAMES[dtype]} {name} {rows} row{'s' if rows > 1 else ''}"
                yield Case("rows", title, partial(_build, name, build, dtype, rows), quick=rows == 1)


def _build(
    name: str, build: Callable[[Dtype, int], _Forms], dtype: Dtype, rows: int, threads: int
) -> Operation:
    """`threads` is what the process was started with."""
    forms = build(dtype, rows)
    calls: dict[str, Callable[[], Any]] = {}
    missing: dict[str, str] = {}
    kernel = getattr(extension(), name.split()[0], None)
    if kernel is None:
        missing[OURS] = f"this build has no {name.split()[0]}"
    else:
        calls[OURS] = evaluated(lambda: forms.ours(kernel))
    calls[MLX] = evaluated(forms.mlx)
    right = forms.right.reshape(-1, forms.right.shape[-1])
    sample = sampled(len(right), right.shape[1], most_columns=right.shape[1])
    nbytes = sum(array.nbytes for array in forms.moved) + right.size * forms.moved[0].itemsize
    return Operation(
        dtype, forms.flops, nbytes, calls, sample, right[sample[0]], forms.tolerance, missing=missing
    )


class _Forms:
    """One piece of work: by our kernel, by MLX, and in float64; `moved` is what must be read."""

    def __init__(
        self,
        ours: Callable[[Any], mx.array],
        mlx: Callable[[], mx.array],
        right: Float64,
        moved: list[mx.array],
        operations: float,
        tolerance: float = 0.0,
    ):
        self.ours, self.mlx, self.right, self.moved, self.tolerance = ours, mlx, right, moved, tolerance
        self.flops = operations * moved[0].size


def _rms_norm(dtype: Dtype, rows: int) -> _Forms:
    x, weight = random_array((rows, HIDDEN), dtype, 0), random_array((HIDDEN,), dtype, 1)
    right = _normalised(exact(x), weight)
    mlx = partial(mx.fast.rms_norm, x, weight, EPS)
    return _Forms(lambda kernel: kernel(x, weight, EPS), mlx, right, [x, weight], 4)


def _normalised(x: Float64, weight: mx.array) -> Float64:
    out: Float64 = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + EPS) * exact(weight)
    return out


def _silu_multiply(dtype: Dtype, rows: int) -> _Forms:
    gate, up = (random_array((rows, INNER), dtype, seed) for seed in (0, 1))
    wide = exact(gate)
    right = wide / (1 + np.exp(-wide)) * exact(up)
    return _Forms(lambda kernel: kernel(gate, up), lambda: gate * mx.sigmoid(gate) * up, right, [gate, up], 5)


def _rope(dtype: Dtype, rows: int) -> _Forms:
    x = random_array((1, rows, HEADS, HEAD), dtype, 0)
    table = RotationTable(HEAD, POSITION + rows, BASE)
    angle = np.outer(np.arange(POSITION, POSITION + rows), BASE ** (-np.arange(HEAD // 2) / (HEAD // 2)))
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    real, imaginary = np.split(exact(x)[0], 2, axis=-1)
    right = np.concatenate([real * cos - imaginary * sin, imaginary * cos + real * sin], axis=-1)

    def mlx() -> mx.array:
        turned = mx.fast.rope(
            x.swapaxes(1, 2), HEAD, traditional=False, base=BASE, scale=1.0, offset=POSITION
        )
        return turned.swapaxes(1, 2)

    return _Forms(lambda kernel: kernel(x, table.cos, table.sin, POSITION), mlx, right, [x], 3)


def _quantized_rows(dtype: Dtype, rows: int) -> _Forms:
    dense = random_array((VOCABULARY, HIDDEN), dtype, 0)
    weight, scales, biases = mx.quantize(dense, group_size=GROUP_SIZE, bits=BITS)
    ids = mx.random.randint(0, VOCABULARY, (rows,), dtype=mx.uint32, key=mx.random.key(1))
    mx.eval(weight, scales, biases, ids)

    def mlx() -> mx.array:
        return mx.dequantize(weight[ids], scales[ids], biases[ids], GROUP_SIZE, BITS)

    chosen = [array[ids] for array in (scales, biases)]
    wide = [array.astype(mx.float32) for array in chosen]
    right = exact(mx.dequantize(weight[ids], wide[0], wide[1], GROUP_SIZE, BITS))
    kernel_call = partial(_looked_up, ids, weight, scales, biases)
    return _Forms(kernel_call, mlx, right, [*chosen, weight[ids]], 2)


def _looked_up(ids: mx.array, weight: mx.array, scales: mx.array, biases: mx.array, kernel: Any) -> mx.array:
    out: mx.array = kernel(ids, weight, scales, biases, GROUP_SIZE, BITS)
    return out


def _argmax(dtype: Dtype, rows: int) -> _Forms:
    x = random_array((rows, VOCABULARY), dtype, 0)
    right = exact(x).argmax(axis=1).astype(np.float64)[:, None]
    mlx = partial(mx.argmax, x, axis=-1, keepdims=True)
    return _Forms(lambda kernel: kernel(x)[:, None], mlx, right, [x], 1, EXACT)


def _top_k(dtype: Dtype, rows: int) -> _Forms:
    x = random_array((rows, VOCABULARY), dtype, 0)
    right = np.sort(exact(x), axis=1)[:, : -TOP - 1 : -1]

    def mlx() -> mx.array:
        return mx.sort(mx.topk(x, TOP), axis=-1)[:, ::-1]

    return _Forms(lambda kernel: kernel(x, TOP)[0], mlx, right, [x], 1)


def _logsumexp(dtype: Dtype, rows: int) -> _Forms:
    x = random_array((rows, VOCABULARY), dtype, 0)
    right = np.log(np.exp(exact(x)).sum(axis=1, keepdims=True))
    mlx = partial(mx.logsumexp, x, axis=-1, keepdims=True)
    return _Forms(lambda kernel: kernel(x)[:, None], mlx, right, [x], 2)


# The kernel's name in the first word, and how many rows it has where it has many.
KERNELS: dict[str, tuple[Callable[[Dtype, int], _Forms], int]] = {
    "rms_norm": (_rms_norm, PROMPT),
    "silu_multiply": (_silu_multiply, PROMPT),
    "rope": (_rope, PROMPT),
    "quantized_rows": (_quantized_rows, PROMPT),
    "argmax": (_argmax, SEQUENCES),
    "top_k": (_top_k, SEQUENCES),
    "logsumexp": (_logsumexp, SEQUENCES),
}
