"""Attention: the readable forms, and `flash_attention`: the V2 of course/schedules.py in native kernels."""

from collections.abc import Callable
from typing import Any, Literal, Unpack, overload

import mlx.core as mx

from .basics import linear
from .checks.arrays import check_arrays, check_shape
from .checks.types import check_size, check_type
from .errors import ArgumentError
from .ops.arguments import (
    AttentionOptions,
    Lengths,
    Mask,
    StreamOrDevice,
    Window,
    check_scale,
    native_options,
    read_scale,
    results,
)
from .ops.dense import attend, check_inputs, check_mask
from .ops.explanation import Explanation, explain, explains
from .ops.merge import merge_lse, merge_partials
from .ops.paged import paged_attention, paged_attention_decode
from .ops.slots import store_kvcache
from .ops.varlen import flash_attention_prefill, flash_attention_varlen
from .runtime.extension import load_extension

__all__ = [
    "Explanation",
    "SimpleMultiHeadAttention",
    "attention_reference",
    "causal_mask",
    "explain",
    "flash_attention",
    "flash_attention_prefill",
    "flash_attention_varlen",
    "merge_lse",
    "merge_partials",
    "paged_attention",
    "paged_attention_decode",
    "scaled_dot_product_attention_grouped",
    "scaled_dot_product_attention_simple",
    "store_kvcache",
]


def scaled_dot_product_attention_simple(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | mx.array | None = None,
    mask: mx.array | None = None,
) -> mx.array:
    """Average of `value`, weighted by key and query: softmax(scale * query key^T + mask) value.

    query [..., L, D], key [..., S, D], value [..., S, E] -> [..., L, E]. A float mask is added to the
    scores, a bool mask keeps what is True; it broadcasts to [..., L, S]. A query that sees no key gives
    zeros.
    """
    name = "scaled_dot_product_attention_simple"
    check_inputs(name, query, key, value, scale)
    if query.ndim < 2:
        raise ArgumentError(name, "query", query.shape, "(..., L, D)")
    check_shape(name, "key", key.shape, (*query.shape[:-2], "S", query.shape[-1]))
    check_shape(name, "value", value.shape, (*key.shape[:-1], "E"))
    if mask is not None:
        check_mask(name, mask, (*query.shape[:-1], key.shape[-2]))
    return attend(query, key, value, scale, mask)


def causal_mask(L: int, S: int, dtype: mx.Dtype) -> mx.array:
    """The mask [L, S] of 0 and -inf in which the last L of S tokens see themselves and earlier tokens."""
    for argument, size in (("L", L), ("S", S)):
        check_size("causal_mask", argument, size, minimum=0)
    check_type("causal_mask", "dtype", dtype, mx.Dtype, "a dtype of mlx")
    row, column = mx.arange(L)[:, None], mx.arange(S)[None, :]
    return mx.where(column <= row + (S - L), 0.0, -mx.inf).astype(dtype)


def scaled_dot_product_attention_grouped(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | mx.array | None = None,
    mask: Mask = None,
) -> mx.array:
    """Grouped-query attention: a group of query heads shares a key/value head, which is not repeated.

    query [*B, H_q, L, D], key [*B, H, S, D], value [*B, H, S, E] -> [*B, H_q, L, E]; query head h reads
    head h // (H_q / H). The mask is None, "causal", or an array that broadcasts to [*B, H_q, L, S].
    """
    name = "scaled_dot_product_attention_grouped"
    check_inputs(name, query, key, value, scale)
    if query.ndim < 3:
        raise ArgumentError(name, "query", query.shape, "(*B, H_q, L, D)")
    *batch, query_heads, L, D = query.shape
    check_shape(name, "key", key.shape, (*batch, "H", "S", D))
    check_shape(name, "value", value.shape, (*key.shape[:-1], "E"))
    heads, S = key.shape[-3:-1]
    if heads == 0 or query_heads % heads != 0:
        raise ArgumentError(name, "query", f"{query_heads} heads", f"a multiple of the {heads} of key")
    if isinstance(mask, str):
        if mask != "causal":
            raise ArgumentError(name, "mask", repr(mask), "None, 'causal' or an array")
        mask = causal_mask(L, S, mx.float32)
    elif mask is not None:
        check_mask(name, mask, (*batch, query_heads, L, S))
        # Split the mask's head axis into (KV heads, GQA group), like the query's.
        if mask.ndim >= 3:
            mask = mx.unflatten(mask, -3, (1, 1) if mask.shape[-3] == 1 else (heads, -1))
    grouped = mx.unflatten(query, -3, (heads, query_heads // heads))
    result = attend(grouped, key[..., None, :, :], value[..., None, :, :], scale, mask)
    return mx.flatten(result, -4, -3)


class SimpleMultiHeadAttention:
    """Attention in `num_heads` parts of the hidden vector at once; four weights [hidden, hidden]."""

    def __init__(
        self, hidden_size: int, num_heads: int, wq: mx.array, wk: mx.array, wv: mx.array, wo: mx.array
    ):
        check_size("SimpleMultiHeadAttention", "hidden_size", hidden_size)
        check_size("SimpleMultiHeadAttention", "num_heads", num_heads)
        if hidden_size % num_heads != 0:
            raise ArgumentError(
                "SimpleMultiHeadAttention", "num_heads", num_heads, f"a divisor of {hidden_size}"
            )
        weights = {"wq": wq, "wk": wk, "wv": wv, "wo": wo}
        check_arrays("SimpleMultiHeadAttention", **weights)
        for name, weight in weights.items():
            check_shape("SimpleMultiHeadAttention", name, weight.shape, (hidden_size, hidden_size))
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.wq, self.wk, self.wv, self.wo = wq, wk, wv, wo

    def __call__(
        self, query: mx.array, key: mx.array, value: mx.array, mask: mx.array | None = None
    ) -> mx.array:
        """[N, L, hidden], three times -> [N, L, hidden]; the mask broadcasts to [N, heads, L, L]."""
        q = self._heads(linear(query, self.wq))
        k = self._heads(linear(key, self.wk))
        v = self._heads(linear(value, self.wv))
        attended = scaled_dot_product_attention_simple(q, k, v, mask=mask)
        return linear(mx.flatten(attended.swapaxes(1, 2), -2, -1), self.wo)

    def _heads(self, x: mx.array) -> mx.array:
        """[N, L, hidden] -> [N, heads, L, hidden / heads]."""
        return mx.unflatten(x, -1, (self.num_heads, -1)).swapaxes(1, 2)


@overload
def flash_attention(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | mx.array | None = None,
    mask: Mask = None,
    *,
    return_lse: Literal[False] = False,
    **options: Unpack[AttentionOptions],
) -> mx.array: ...


@overload
def flash_attention(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | mx.array | None = None,
    mask: Mask = None,
    *,
    return_lse: Literal[True],
    **options: Unpack[AttentionOptions],
) -> tuple[mx.array, mx.array]: ...


def flash_attention(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | mx.array | None = None,
    mask: Mask = None,
    *,
    causal: bool = False,
    window: Window = None,
    softcap: float | None = None,
    sinks: mx.array | None = None,
    q_lens: Lengths = None,
    kv_start: Lengths = None,
    kv_lens: Lengths = None,
    return_lse: bool = False,
    deterministic: bool = True,
    batch_invariant: bool = False,
    schedule: str = "v2",
    on_fallback: str = "warn",
    k_quant: None = None,
    v_quant: None = None,
    stream: StreamOrDevice = None,
) -> mx.array | tuple[mx.array, mx.array]:
    """Attention in tiles, without a score matrix in memory; the result is that of the grouped form.

    query [*B, H_q, L, E], key and value [*B, H, S, E], all float32, float16 or bfloat16, with any strides
    -> [*B, H_q, L, E] in that dtype. Axes are [..., heads, length, head size], as in `mx.fast`.
    With `return_lse` also the log-sum-exp of the scores [*B, H_q, L].
    Scores are scale * query key^T (scale defaults to E ** -0.5), and a row that sees no key gives zeros.

    mask: None, "causal", or an array that broadcasts to [*B, H_q, L, S]: float is added, bool keeps what is
        True. It is read in place, never expanded.
    causal: query i attends to keys 0 .. i + (S - L) (bottom-right aligned).
    window: this many keys (causal: up to and including the query's own), or (left, right), -1 for no limit.
    softcap: scores s become softcap * tanh(s / softcap).
    sinks: [H_q] scores of a key without a value, added to the denominator of each row.
    q_lens, kv_start, kv_lens: [*B] integers; sequence b is its first q_lens[b] queries and its keys
        kv_start[b] .. kv_start[b] + kv_lens[b] - 1. Values outside, also NaN, have no effect.
    deterministic, batch_invariant: require the same bits in each run, and bits of a row that do not depend on
        the rest of the batch. The CPU kernels guarantee both in every call. On Metal, batch_invariant runs
        prompts and single tokens with the same kernel. Without a kernel that guarantees it, the call raises
        NotImplementedError.
    schedule: order of the loops on the CPU: "v2" over queries, then keys; "v1" over keys, then all queries.
    on_fallback: where no kernel applies, "warn" (once for each reason) and "allow" run `attention_reference`,
        and "error" raises NotImplementedError; `explain` says when and why.
    k_quant, v_quant: reserved for quantized keys and values.

    Gradients of query, key, value and sinks have kernels on the CPU, in memory linear in L and S; elsewhere
    they go through `attention_reference`. Gradients of the mask or of a scale in an array, mx.jvp, and
    derivatives of the gradient raise NotImplementedError; `attention_reference` has them all. On a GPU
    without a kernel of ours, `mx.fast.scaled_dot_product_attention` runs where it computes the same, which is
    no fallback: derivatives are MLX's, and NaN in a hidden key may reach the result.
    """
    given = {
        "causal": causal,
        "window": window,
        "softcap": softcap,
        "sinks": sinks,
        "q_lens": q_lens,
        "kv_start": kv_start,
        "kv_lens": kv_lens,
        "return_lse": return_lse,
        "deterministic": deterministic,
        "batch_invariant": batch_invariant,
        "schedule": schedule,
        "on_fallback": on_fallback,
        "k_quant": k_quant,
        "v_quant": v_quant,
        "stream": stream,
    }
    options = native_options("flash_attention", query, key, value, given)
    number = read_scale("flash_attention", scale)
    out, lse = load_extension().attention(query, key, value, scale=number, mask=mask, **options)
    return results("flash_attention", scale, out, lse)


def attention_reference(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | mx.array | None = None,
    mask: Mask = None,
    *,
    return_lse: bool = False,
    **options: Unpack[AttentionOptions],
) -> Any:
    """`flash_attention` in ordinary MLX operations, with the same arguments, in O(L * S) memory.

    It has any head size, and derivatives of every order, also with respect to a scale in an array.
    """
    name = "attention_reference"
    native = native_options(name, query, key, value, {**options, "return_lse": return_lse})
    compute = load_extension().attention_reference
    if isinstance(scale, mx.array):
        check_scale(name, scale)
        # Only for the checks of the inputs, before they are cast to float32.
        load_extension().explain_attention_reference(query, key, value, scale=1.0, mask=mask, **native)
        wide_query, wide_key, wide_value = (x.astype(mx.float32) for x in (query, key, value))
        out, lse = compute(wide_query * scale, wide_key, wide_value, scale=1.0, mask=mask, **native)
        out = out.astype(query.dtype)
    else:
        out, lse = compute(query, key, value, scale=read_scale(name, scale), mask=mask, **native)
    return (out, lse) if return_lse else out


@explains(flash_attention, attention_reference)
def _explain(
    function: Callable[..., Any],
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | mx.array | None = None,
    mask: Mask = None,
    *,
    return_lse: bool = False,
    **options: Unpack[AttentionOptions],
) -> Explanation:
    name = function.__name__
    arguments = native_options(name, query, key, value, {**options, "return_lse": return_lse})
    compute = getattr(load_extension(), "explain_" + name.removeprefix("flash_"))
    return Explanation(**compute(query, key, value, scale=read_scale(name, scale), mask=mask, **arguments))
