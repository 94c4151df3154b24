"""Operations on rows, which memory limits: normalization, activation, RoPE, embedding lookup, selection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from benches.cases.arrays import TOLERANCE, exact, random_array, sampled
from benches.cases.products import GROUP_SIZE
from benches.harness.contestant import Case, Contestant, Operation, evaluated, own
from benches.harness.gate import Float64, Gate
from benches.harness.types import DTYPES, SHORT_NAMES, Dtype
from benches.names import MLX
from tiny_llm.positional_encoding import RotationTable
from tiny_llm.runtime.extension import load_extension

EPS, BASE, BITS, TOP = 1e-6, 1e6, 4, 40
HIDDEN, INNER, HEADS, HEAD, VOCABULARY = 896, 4864, 14, 64, 151936  # of qwen2-0.5b
PROMPT, SEQUENCES = 512, 8  # rows of a prompt, and of sequences that select a token
EXACT = 1e-9  # tolerance of indices
POSITION = 512  # of the first row


def row_cases() -> Iterator[Case]:
    for dtype in DTYPES:
        for name, (build, many) in KERNELS.items():
            for rows in (1, many):
                title = f"{SHORT_NAMES[dtype]} {name} {rows} row{'s' if rows > 1 else ''}"
                yield Case("rows", title, partial(_build, name, build, dtype, rows), quick=rows == 1)


@dataclass(slots=True)
class _Forms:
    """One operation by the kernel of tiny_llm, by MLX and in float64."""

    kernel: Callable[[Any], mx.array]  # takes the function of the extension
    mlx: Callable[[], mx.array]
    expected: Float64
    read: list[mx.array]  # what every contestant must read
    operations: float  # per element of the first of these
    tolerance: float | None = None


def _build(
    name: str, build: Callable[[Dtype, int], _Forms], dtype: Dtype, rows: int, threads: int
) -> Operation:
    """`threads` is that of the process."""
    forms = build(dtype, rows)
    kernel = getattr(load_extension(), name)
    expected = forms.expected.reshape(-1, forms.expected.shape[-1])
    sample = sampled(*expected.shape, most_columns=expected.shape[1])
    first = forms.read[0]
    return Operation(
        dtype=dtype,
        flops=forms.operations * first.size,
        bytes=sum(array.nbytes for array in forms.read) + expected.size * first.itemsize,
        gate=Gate(expected.shape, *sample, expected[sample[0]], forms.tolerance or TOLERANCE[dtype]),
        contestants=[own(evaluated(lambda: forms.kernel(kernel))), Contestant(MLX, evaluated(forms.mlx))],
    )


def _rms_norm(dtype: Dtype, rows: int) -> _Forms:
    x, weight = random_array((rows, HIDDEN), dtype, 0), random_array((HIDDEN,), dtype, 1)
    expected = _normalised(exact(x), weight)
    mlx = partial(mx.fast.rms_norm, x, weight, EPS)
    return _Forms(lambda kernel: kernel(x, weight, EPS), mlx, expected, [x, weight], 4)


def _normalised(x: Float64, weight: mx.array) -> Float64:
    out: Float64 = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + EPS) * exact(weight)
    return out


def _silu_multiply(dtype: Dtype, rows: int) -> _Forms:
    gate, up = (random_array((rows, INNER), dtype, seed) for seed in (0, 1))
    wide = exact(gate)
    expected = wide / (1 + np.exp(-wide)) * exact(up)
    return _Forms(
        lambda kernel: kernel(gate, up), lambda: gate * mx.sigmoid(gate) * up, expected, [gate, up], 5
    )


def _rope(dtype: Dtype, rows: int) -> _Forms:
    x = random_array((1, rows, HEADS, HEAD), dtype, 0)
    table = RotationTable(HEAD, POSITION + rows, BASE)
    angle = np.outer(np.arange(POSITION, POSITION + rows), BASE ** (-np.arange(HEAD // 2) / (HEAD // 2)))
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    real, imaginary = np.split(exact(x)[0], 2, axis=-1)
    expected = np.concatenate([real * cos - imaginary * sin, imaginary * cos + real * sin], axis=-1)

    def mlx() -> mx.array:
        turned = mx.fast.rope(
            x.swapaxes(1, 2), HEAD, traditional=False, base=BASE, scale=1.0, offset=POSITION
        )
        return turned.swapaxes(1, 2)

    return _Forms(lambda kernel: kernel(x, table.cos, table.sin, POSITION), mlx, expected, [x], 3)


def _quantized_rows(dtype: Dtype, rows: int) -> _Forms:
    dense = random_array((VOCABULARY, HIDDEN), dtype, 0)
    weight, scales, biases = mx.quantize(dense, group_size=GROUP_SIZE, bits=BITS)
    ids = mx.random.randint(0, VOCABULARY, (rows,), dtype=mx.uint32, key=mx.random.key(1))
    mx.eval(weight, scales, biases, ids)

    def mlx() -> mx.array:
        return mx.dequantize(weight[ids], scales[ids], biases[ids], GROUP_SIZE, BITS)

    chosen = [array[ids] for array in (scales, biases)]
    wide = [array.astype(mx.float32) for array in chosen]
    expected = exact(mx.dequantize(weight[ids], wide[0], wide[1], GROUP_SIZE, BITS))
    call = partial(_lookup, ids, weight, scales, biases)
    return _Forms(call, mlx, expected, [*chosen, weight[ids]], 2)


def _lookup(ids: mx.array, weight: mx.array, scales: mx.array, biases: mx.array, kernel: Any) -> mx.array:
    out: mx.array = kernel(ids, weight, scales, biases, GROUP_SIZE, BITS)
    return out


def _argmax(dtype: Dtype, rows: int) -> _Forms:
    x = random_array((rows, VOCABULARY), dtype, 0)
    expected = exact(x).argmax(axis=1).astype(np.float64)[:, None]
    mlx = partial(mx.argmax, x, axis=-1, keepdims=True)
    return _Forms(lambda kernel: kernel(x)[:, None], mlx, expected, [x], 1, EXACT)


def _top_k(dtype: Dtype, rows: int) -> _Forms:
    x = random_array((rows, VOCABULARY), dtype, 0)
    expected = np.sort(exact(x), axis=1)[:, : -TOP - 1 : -1]

    def mlx() -> mx.array:
        return mx.sort(mx.topk(x, TOP), axis=-1)[:, ::-1]

    return _Forms(lambda kernel: kernel(x, TOP)[0], mlx, expected, [x], 1)


def _logsumexp(dtype: Dtype, rows: int) -> _Forms:
    x = random_array((rows, VOCABULARY), dtype, 0)
    expected = np.log(np.exp(exact(x)).sum(axis=1, keepdims=True))
    mlx = partial(mx.logsumexp, x, axis=-1, keepdims=True)
    return _Forms(lambda kernel: kernel(x)[:, None], mlx, expected, [x], 2)


# By the name of the kernel; the number is that of the case with many rows.
KERNELS: dict[str, tuple[Callable[[Dtype, int], _Forms], int]] = {
    "rms_norm": (_rms_norm, PROMPT),
    "silu_multiply": (_silu_multiply, PROMPT),
    "rope": (_rope, PROMPT),
    "quantized_rows": (_quantized_rows, PROMPT),
    "argmax": (_argmax, SEQUENCES),
    "top_k": (_top_k, SEQUENCES),
    "logsumexp": (_logsumexp, SEQUENCES),
}
