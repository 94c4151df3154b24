"""For tests of row kernels: layouts, the tolerance of one rounding, gradients and vmap of a plain form."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from .cases import normal
from .tolerance import GRADIENT_FLOOR, Float64, max_error, to_float64

# Error of float32 arithmetic and one rounding: relative and absolute.
ROUNDED_ONCE = {mx.float32: (1e-5, 1e-6), mx.float16: (2e-3, 1e-3), mx.bfloat16: (8e-3, 1e-3)}


def assert_rounded_once(actual: mx.array, expected: Float64, dtype: mx.Dtype) -> None:
    """`actual` has that dtype and equals `expected` within the error of float32 and one rounding."""
    assert actual.dtype == dtype
    assert actual.shape == expected.shape
    rtol, atol = ROUNDED_ONCE[dtype]
    np.testing.assert_allclose(to_float64(actual), expected, rtol, atol, equal_nan=False)


def with_gaps(x: mx.array) -> mx.array:
    """The same values with a stride of 2 along the last axis."""
    return mx.contiguous(mx.repeat(x, 2, axis=-1))[..., ::2]


def backwards(x: mx.array) -> mx.array:
    """The same values, stored in reverse along the last axis."""
    return mx.contiguous(x[..., ::-1])[..., ::-1]


def transposed(x: mx.array) -> mx.array:
    """The same values, the first axis innermost in memory."""
    return mx.contiguous(mx.moveaxis(x, 0, -1)).moveaxis(-1, 0)


def rows_apart(x: mx.array) -> mx.array:
    """The same values in dense rows with a gap after each."""
    return mx.contiguous(mx.concatenate([x, x], axis=-1))[..., : x.shape[-1]]


LAYOUTS = [with_gaps, backwards, transposed, rows_apart]


@contextmanager
def graph_of(module: str) -> Iterator[None]:
    """Inside this context, the layers of that module use MLX operations, as without the extension."""
    layers: Any = importlib.import_module(module)
    asked = [name for name in ("cpu_kernels", "fused_operations") if hasattr(layers, name)]
    assert asked
    kept = {name: getattr(layers, name) for name in asked}
    for name in asked:
        setattr(layers, name, lambda dtype: None)
    try:
        yield
    finally:
        for name, function in kept.items():
            setattr(layers, name, function)


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
    """vmap over three variations of the inputs equals three calls."""
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
