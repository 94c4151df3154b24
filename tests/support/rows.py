"""What the tests of the row kernels share: layouts, one rounding, gradients and maps against a plain form."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from .cases import normal
from .tolerance import GRADIENT_FLOOR, Float64, max_error, to_float64

# What float32 arithmetic and one rounding may cost, relative and absolute.
ROUNDED_ONCE = {mx.float32: (1e-5, 1e-6), mx.float16: (2e-3, 1e-3), mx.bfloat16: (8e-3, 1e-3)}


def assert_rounded_once(actual: mx.array, expected: Float64, dtype: mx.Dtype) -> None:
    """`actual` is of that type and equals `expected`, as far as float32 and one rounding allow."""
    assert actual.dtype == dtype
    assert actual.shape == expected.shape
    rtol, atol = ROUNDED_ONCE[dtype]
    np.testing.assert_allclose(to_float64(actual), expected, rtol, atol, equal_nan=False)


def with_gaps(x: mx.array) -> mx.array:
    """The same values, with others between them along the last axis."""
    return mx.contiguous(mx.repeat(x, 2, axis=-1))[..., ::2]


def backwards(x: mx.array) -> mx.array:
    """The same values, stored from the last to the first."""
    return mx.contiguous(x[..., ::-1])[..., ::-1]


def transposed(x: mx.array) -> mx.array:
    """The same values, the first axis innermost in memory."""
    return mx.contiguous(mx.moveaxis(x, 0, -1)).moveaxis(-1, 0)


def rows_apart(x: mx.array) -> mx.array:
    """The same values in dense rows with a gap behind each."""
    return mx.contiguous(mx.concatenate([x, x], axis=-1))[..., : x.shape[-1]]


LAYOUTS = [with_gaps, backwards, transposed, rows_apart]


@contextmanager
def graph_of(module: str) -> Iterator[None]:
    """Within, the layers of that module are made of MLX operations, as where the extension is not built."""
    layers: Any = importlib.import_module(module)
    kept, layers.cpu_kernels = layers.cpu_kernels, lambda dtype: None
    try:
        yield
    finally:
        layers.cpu_kernels = kept


def _as_list(outputs: Any) -> list[mx.array]:
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]


def same_gradients(fused: Callable[..., Any], plain: Callable[..., Any], inputs: Sequence[mx.array]) -> None:
    """vjp and jvp of both functions agree, for the same random cotangents and tangents."""
    floor = max(GRADIENT_FLOOR[x.dtype] for x in inputs)

    def agree(one: list[mx.array], other: list[mx.array]) -> None:
        for got, want in zip(one, other, strict=True):
            assert got.dtype == want.dtype
            expected = to_float64(want)
            assert max_error(to_float64(got), expected) <= floor * max(1, np.abs(expected).max(initial=0))

    def differentiate(function: Callable[..., Any]) -> tuple[list[mx.array], list[mx.array]]:
        def listed(*arrays: mx.array) -> list[mx.array]:
            return _as_list(function(*arrays))

        outputs = listed(*inputs)
        cotangents = [normal(*y.shape, dtype=y.dtype, seed=50 + i) for i, y in enumerate(outputs)]
        tangents = [normal(*x.shape, dtype=x.dtype, seed=60 + i) for i, x in enumerate(inputs)]
        return mx.vjp(listed, list(inputs), cotangents)[1], mx.jvp(listed, list(inputs), tangents)[1]

    for got, want in zip(differentiate(fused), differentiate(plain), strict=True):
        agree(got, want)


def same_when_mapped(
    function: Callable[..., Any], inputs: Sequence[mx.array], axes: Sequence[int | None]
) -> None:
    """A map over three variations of the inputs gives what three calls give."""
    mapped = [
        x if axis is None else mx.stack([x, x + 1, x * 2], axis=axis)
        for x, axis in zip(inputs, axes, strict=True)
    ]

    def call(i: int) -> list[mx.array]:
        variation = [
            x if axis is None else mx.take(m, i, axis=axis)
            for x, m, axis in zip(inputs, mapped, axes, strict=True)
        ]
        return _as_list(function(*variation))

    together = _as_list(mx.vmap(function, in_axes=tuple(axes))(*mapped))
    for i in range(3):
        for got, want in zip(together, call(i), strict=True):
            assert got.dtype == want.dtype
            assert mx.allclose(got[i], want, rtol=1e-5, atol=1e-6)
