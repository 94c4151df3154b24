"""`attention` as on a GPU without kernels of ours, on any device."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from .. import native
from .check import compare_output

PATH = "mlx.scaled_dot_product_attention"


def attend(*inputs: mx.array, on_fallback: str = "error", **options: Any) -> mx.array:
    out, lse = native.attention(
        *inputs, **options, own_kernels=False, return_lse=False, on_fallback=on_fallback
    )
    assert lse is None
    return out


def explain(*inputs: mx.array, return_lse: bool = False, **options: Any) -> dict[str, Any]:
    explanation: dict[str, Any] = native.explain_attention(
        *inputs, **options, own_kernels=False, return_lse=return_lse
    )
    return explanation


def check(*inputs: mx.array, **options: Any) -> None:
    """MLX's operation runs, agrees with the oracle, and is what `explain` says."""
    out = attend(*inputs, **options)
    assert native.last_run()["path"] == PATH
    assert explain(*inputs, **options)["path"] == PATH
    compare_output(out, *inputs, **options)
