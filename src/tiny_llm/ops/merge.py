"""Merging attention over parts of the keys; each part has an output and the log-sum-exp of its scores."""

from collections.abc import Iterable

import mlx.core as mx

from ..checks.arrays import check_arrays, dtype_name
from ..checks.types import kind
from ..errors import ArgumentError

Part = tuple[mx.array, mx.array]


def merge_lse(o1: mx.array, lse1: mx.array, o2: mx.array, lse2: mx.array) -> Part:
    """Attention over the union of two disjoint sets of keys, from the attention over each.

    Outputs [..., L, E] and log-sum-exps [..., L] -> the same, computed in float32, the output in the dtype of
    o1. A part without keys (log-sum-exp -inf) leaves the other one as it is; a sink belongs in one part only.
    """
    check_arrays("merge_lse", o1=o1, lse1=lse1, o2=o2, lse2=lse2)
    if not o1.shape or o1.shape != o2.shape or lse1.shape != lse2.shape or o1.shape[:-1] != lse1.shape:
        raise ArgumentError(
            "merge_lse",
            "",
            f"outputs {o1.shape}, {o2.shape} and log-sum-exps {lse1.shape}, {lse2.shape}",
            "(..., L, E) and (..., L) twice",
        )
    for name, one, other in (("output", o1, o2), ("log-sum-exp", lse1, lse2)):
        if one.dtype != other.dtype or not mx.issubdtype(one.dtype, mx.floating):
            got = f"{dtype_name(one.dtype)} and {dtype_name(other.dtype)}"
            raise ArgumentError("merge_lse", name, got, "one floating point type")
    lse1, lse2 = lse1.astype(mx.float32), lse2.astype(mx.float32)
    empty1, empty2 = mx.isneginf(lse1), mx.isneginf(lse2)
    # The output of an empty part is undefined: it must reach neither the sum nor, as 0 * NaN, the gradient.
    first = mx.where(empty1[..., None], 0, o1.astype(mx.float32))
    second = mx.where(empty2[..., None], 0, o2.astype(mx.float32))

    # `top` only keeps exp in range. It cancels, so it needs no gradient.
    top = mx.maximum(lse1, lse2)
    top = mx.stop_gradient(mx.where(mx.isneginf(top), 0, top))
    weight1, weight2 = mx.exp(lse1 - top), mx.exp(lse2 - top)
    total = mx.where(empty1 & empty2, 1, weight1 + weight2)
    merged = (weight1[..., None] * first + weight2[..., None] * second) / total[..., None]
    out = mx.where(empty2[..., None], first, mx.where(empty1[..., None], second, merged))
    lse = mx.where(empty2, lse1, mx.where(empty1, lse2, top + mx.log(total)))
    return out.astype(o1.dtype), lse


def merge_partials(parts: Iterable[Part]) -> Part:
    """Merge any number of (output, log-sum-exp) pairs, at least one, from the first to the last."""
    remaining = map(_pair, parts)
    try:
        out, lse = next(remaining)
    except StopIteration:
        raise ArgumentError("merge_partials", "", "no parts", "at least one") from None
    for part in remaining:
        out, lse = merge_lse(out, lse, *part)
    return out, lse


def _pair(part: Part) -> Part:
    if not isinstance(part, tuple | list) or len(part) != 2:
        raise ArgumentError("merge_partials", "parts", kind(part), "pairs of output and log-sum-exp")
    out, lse = part
    return out, lse
