"""Packed sequences and the oracle's answer for each of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

from tiny_llm.attention import flash_attention_varlen

from ..cases import normal
from ..native import last_run
from ..tolerance import FLOOR, assert_close, to_float64
from . import oracle


class Packed(NamedTuple):
    """query [T_q, H_q, E], key and value [T_k, H, E], and the first row of each sequence."""

    query: mx.array
    key: mx.array
    value: mx.array
    cu_seqlens_q: list[int]
    cu_seqlens_k: list[int]

    def parts(self) -> list[tuple[slice, slice]]:
        """The query and key rows of each sequence."""
        rows = zip(self.cu_seqlens_q, self.cu_seqlens_q[1:], strict=False)
        keys = zip(self.cu_seqlens_k, self.cu_seqlens_k[1:], strict=False)
        return [(slice(*r), slice(*k)) for r, k in zip(rows, keys, strict=True)]

    def alone(self, rows: slice, keys: slice) -> tuple[mx.array, mx.array, mx.array]:
        """One sequence as [1, heads, length, E]."""
        parts = (self.query[rows], self.key[keys], self.value[keys])
        query, key, value = (x.swapaxes(0, 1)[None] for x in parts)
        return query, key, value


def cumulative(sizes: list[int]) -> list[int]:
    return [0, *np.cumsum(sizes).tolist()]


def packed(
    q_sizes: list[int],
    k_sizes: list[int] | None = None,
    *,
    heads: int = 4,
    kv_heads: int = 2,
    E: int = 32,
    dtype: mx.Dtype = mx.float32,
    seed: int = 0,
) -> Packed:
    """Sequences of these lengths, with N(0, 1) values."""
    k_sizes = q_sizes if k_sizes is None else k_sizes
    query = normal(sum(q_sizes), heads, E, dtype=dtype, seed=3 * seed)
    key, value = (normal(sum(k_sizes), kv_heads, E, dtype=dtype, seed=3 * seed + i) for i in (1, 2))
    return Packed(query, key, value, cumulative(q_sizes), cumulative(k_sizes))


def expected(call: Packed, **options: Any) -> oracle.Attention:
    """Each sequence alone, in float64: output [T_q, H_q, E] and log-sum-exp [T_q, H_q]."""
    out = np.zeros(call.query.shape)
    lse = np.full(call.query.shape[:2], -np.inf)
    for rows, keys in call.parts():
        arrays = (to_float64(x)[0] for x in call.alone(rows, keys))
        answer = oracle.attention(*arrays, **options)
        out[rows] = answer.out.swapaxes(0, 1)
        lse[rows] = answer.lse.swapaxes(0, 1)
    return oracle.Attention(out, lse)


def check_varlen(call: Packed, **options: Any) -> None:
    """A kernel of the CPU computes the call in one launch, and agrees with the oracle."""
    native = {n: mx.array(x, mx.float32) if n == "sinks" else x for n, x in options.items()}
    out, lse = flash_attention_varlen(*call, return_lse=True, on_fallback="error", **native)
    mx.eval(out, lse)
    want = expected(call, **options)
    assert (out.shape, out.dtype) == (call.query.shape, call.query.dtype)
    assert (lse.shape, lse.dtype) == (call.query.shape[:2], mx.float32)
    if out.size:
        assert last_run()["path"].startswith("cpu.")
    dtype = call.query.dtype
    # As of `assert_close` in ordinary attention: the largest log-sum-exp scales the floor.
    assert_close(out, want.out, floor=FLOOR[dtype], what="O")
    finite = want.lse[np.isfinite(want.lse)]
    assert_close(lse, want.lse, floor=FLOOR[mx.float32] * np.abs(finite).max(initial=1.0), what="LSE")
    assert (to_float64(out)[want.lse == -np.inf] == 0).all()
