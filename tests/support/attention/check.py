"""Runs `flash_attention` on the device under test and compares O and LSE with the float64 oracle."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from tiny_llm.attention import attention_reference, flash_attention

from ..native import DEVICE, active_isa, last_run
from ..tolerance import FLOOR, assert_close, to_float64
from . import oracle


def expected(q: mx.array, k: mx.array, v: mx.array, **options: Any) -> oracle.Attention:
    """The oracle's answer to a `flash_attention` call, in float64 on the same values."""
    return oracle.attention(to_float64(q), to_float64(k), to_float64(v), **numpy_options(options))


def compare_output(
    out: mx.array, q: mx.array, k: mx.array, v: mx.array, want: oracle.Attention | None = None, **options: Any
) -> oracle.Attention:
    """Fails unless out is attention of q, k, v; returns the oracle's answer, `want` where it is known."""
    want = expected(q, k, v, **options) if want is None else want
    assert out.dtype == q.dtype
    assert out.shape == q.shape
    assert_close(
        out,
        want.out,
        floor=FLOOR[q.dtype],
        reference=lambda: attention_reference(q, k, v, **options),
        what="O",
    )
    empty = want.lse == -np.inf
    assert (to_float64(out)[empty] == 0).all(), "a row without keys must be exactly zero"
    return want


def compare(
    out: mx.array,
    lse: mx.array,
    q: mx.array,
    k: mx.array,
    v: mx.array,
    want: oracle.Attention | None = None,
    **options: Any,
) -> oracle.Attention:
    """The same for the log-sum-exp, too."""
    want = compare_output(out, q, k, v, want, **options)
    assert lse.dtype == mx.float32
    assert lse.shape == q.shape[:-1]
    finite = want.lse[np.isfinite(want.lse)]
    lse_floor = FLOOR[mx.float32] * np.abs(finite).max(initial=1.0)
    assert_close(
        lse, want.lse, floor=lse_floor, what="LSE",
        reference=lambda: attention_reference(q, k, v, **options, return_lse=True)[1],
    )  # fmt: skip
    return want


def check(q: mx.array, k: mx.array, v: mx.array, **options: Any) -> oracle.Attention:
    """A kernel of the device under test agrees with the oracle; returns the oracle's answer."""
    out, lse = flash_attention(q, k, v, **options, return_lse=True, on_fallback="error")
    mx.eval(out, lse)
    if out.size:
        on_cpu = mx.cpu == DEVICE
        assert last_run()["isa"] == (active_isa() if on_cpu else "")
        assert last_run()["path"].startswith("cpu." if on_cpu else "metal.")
    return compare(out, lse, q, k, v, **options)


def numpy_options(options: dict[str, Any]) -> dict[str, Any]:
    """The same options with arrays as NumPy: bool and integers as they are, floats exactly in float64."""

    def convert(value: Any) -> Any:
        if not isinstance(value, mx.array):
            return value
        return to_float64(value) if mx.issubdtype(value.dtype, mx.floating) else np.array(value)

    return {name: convert(value) for name, value in options.items()}
