"""Runs the gradient of `flash_attention` and compares it with the float64 oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from tiny_llm.attention import attention_reference, explain, flash_attention

from ..cases import normal
from ..native import last_run
from ..tolerance import GRADIENT_FLOOR, assert_close, to_float64
from .check import numpy_options
from .gradient_oracle import gradients as exact_gradients

NAMES = ("dQ", "dK", "dV", "dsinks")


def gradients(
    function: Callable[..., Any], inputs: tuple[mx.array, ...], cotangents: list[mx.array], **options: Any
) -> list[mx.array]:
    """dQ, dK, dV and, for a fourth input, dsinks, for cotangents of the output and the log-sum-exp."""

    def both(q: mx.array, k: mx.array, v: mx.array, sinks: mx.array | None = None) -> list[mx.array]:
        return list(function(q, k, v, sinks=sinks, **options, return_lse=True))

    return mx.vjp(both, list(inputs), cotangents)[1]


def check_gradients(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    sinks: mx.array | None = None,
    *,
    extra: float = 0,
    **options: Any,
) -> list[mx.array]:
    """The gradient of the device under test agrees with the oracle; returns it.

    `extra` adds to the relative floor of the tolerance.
    """
    inputs = (q, k, v) if sinks is None else (q, k, v, sinks)
    cotangents = [normal(*q.shape, dtype=q.dtype, seed=11), normal(*q.shape[:-1], seed=12)]
    got = gradients(flash_attention, inputs, cotangents, on_fallback="error", **options)
    mx.eval(got)
    if q.size:
        assert last_run()["path"] == explain(flash_attention, q, k, v, sinks=sinks, **options).backward_path
    want = exact_gradients(
        *map(to_float64, (q, k, v, *cotangents)), **numpy_options({**options, "sinks": sinks})
    )
    for n, (name, grad, x) in enumerate(zip(NAMES, got, inputs, strict=False)):
        assert (grad.shape, grad.dtype) == (x.shape, x.dtype), name
        exact = want[n]
        assert exact is not None
        assert_close(
            grad,
            exact,
            floor=(GRADIENT_FLOOR[q.dtype] + extra) * np.abs(exact).max(initial=0),
            reference=lambda n=n: gradients(attention_reference, inputs, cotangents, **options)[n],
            what=name,
        )
    return got
