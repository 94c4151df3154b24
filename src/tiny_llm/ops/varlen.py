"""Attention to packed sequences: their rows one after another, without padding."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from ..checks.arrays import check_arrays, check_shape
from ..checks.types import check_int, kind
from ..errors import ArgumentError, ArgumentTypeError, calling
from ..runtime.extension import load_extension
from .arguments import (
    Lengths,
    Mask,
    StreamOrDevice,
    Window,
    native_options,
    read_scale,
    results,
)
from .explanation import Explanation, explains
from .varlen_info import VarlenInfo

NAME = "flash_attention_varlen"


def flash_attention_varlen(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    cu_seqlens_q: Lengths | VarlenInfo,
    cu_seqlens_k: Lengths = None,
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
) -> Any:
    """`flash_attention` of many sequences of any lengths in one call, without padding.

    query [T_q, H_q, E], key and value [T_k, H, E] -> [T_q, H_q, E] in their dtype. With `return_lse` also the
    log-sum-exp of the scores [T_q, H_q].
    Rows cu_seqlens_q[i] .. cu_seqlens_q[i + 1] - 1 of query are sequence i, and likewise of key and value
    (cu_seqlens_k defaults to cu_seqlens_q). Both are integers: 0 first, never less than the number before,
    the number of rows last; [0] is an empty batch, equal neighbours are an empty sequence. A sequence sees
    its own keys only. A `VarlenInfo` in the place of cu_seqlens_q has both, checked once for all layers.

    >>> import mlx.core as mx
    >>> import tiny_llm
    >>> query, key, value = mx.ones((8, 4, 64)), mx.ones((8, 2, 64)), mx.ones((8, 2, 64))
    >>> tiny_llm.flash_attention_varlen(query, key, value, [0, 3, 8], causal=True).shape
    (8, 4, 64)

    mask: None or "causal"; an array raises NotImplementedError.
    causal: the last query of a sequence is at the position of its last key, also if it has more keys than
        queries (tokens after a cached prefix).
    q_lens, kv_start, kv_lens: one integer per sequence; only its first q_lens[i] queries and its keys
        kv_start[i] .. kv_start[i] + kv_lens[i] - 1 count.

    All other arguments are those of `flash_attention`; a row has the same bits as there, alone. So are
    gradients, and mx.vmap works over any of the arrays.
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
    options = native_options(NAME, query, key, value, given)
    packed = _packed(cu_seqlens_q, cu_seqlens_k)
    number = read_scale(NAME, scale)
    attention = load_extension().attention
    out, lse = attention(query, key, value, scale=number, mask=mask, **packed, **options)
    return results(NAME, scale, out, lse)


def flash_attention_prefill(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    cu_seqlens: Lengths | VarlenInfo,
    scale: float | mx.array | None,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    cu_seqlens_k: Lengths = None,
) -> mx.array:
    """Causal attention of packed prompts, with the arguments of MinivLLM.

    q [T, num_heads, head_dim], k and v [T, num_kv_heads, head_dim], cu_seqlens as for
    `flash_attention_varlen` -> [T, num_heads, head_dim] in their dtype. The three sizes must be those of the
    arrays. With cu_seqlens_k, k and v also have rows of an earlier prefix of each sequence.

    >>> import mlx.core as mx
    >>> import tiny_llm
    >>> q, k, v = mx.ones((8, 4, 64)), mx.ones((8, 2, 64)), mx.ones((8, 2, 64))
    >>> tiny_llm.flash_attention_prefill(q, k, v, [0, 3, 8], 64**-0.5, 4, 2, 64).shape
    (8, 4, 64)
    """
    name = "flash_attention_prefill"
    check_arrays(name, q=q, k=k, v=v)
    check_prompt_sizes(name, q, k, v, num_heads, num_kv_heads, head_dim)
    with calling(name, query="q", key="k", value="v", cu_seqlens_q="cu_seqlens"):
        out: mx.array = flash_attention_varlen(q, k, v, cu_seqlens, cu_seqlens_k, scale, causal=True)
    return out


def check_prompt_sizes(
    name: str, q: mx.array, k: mx.array, v: mx.array, num_heads: int, num_kv_heads: int, head_dim: int
) -> None:
    """The three sizes are those of the arrays."""
    sizes = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
    for argument, size in sizes.items():
        check_int(name, argument, size)
    check_shape(name, "q", q.shape, ("T", num_heads, head_dim))
    check_shape(name, "k", k.shape, ("T", num_kv_heads, head_dim))
    check_shape(name, "v", v.shape, k.shape)


@explains(flash_attention_varlen)
def _explain(
    function: Callable[..., Any],
    query: mx.array,
    key: mx.array,
    value: mx.array,
    cu_seqlens_q: Lengths | VarlenInfo,
    cu_seqlens_k: Lengths = None,
    scale: float | mx.array | None = None,
    mask: Mask = None,
    *,
    return_lse: bool = False,
    **options: Any,
) -> Explanation:
    native = native_options(NAME, query, key, value, {**options, "return_lse": return_lse})
    packed = _packed(cu_seqlens_q, cu_seqlens_k)
    explanation = load_extension().explain_attention
    number = read_scale(NAME, scale)
    return Explanation(**explanation(query, key, value, scale=number, mask=mask, **packed, **native))


def _packed(cu_seqlens_q: Lengths | VarlenInfo, cu_seqlens_k: Lengths) -> dict[str, Lengths]:
    if isinstance(cu_seqlens_q, VarlenInfo):
        if cu_seqlens_k is not None:
            expected = "None, because cu_seqlens_q is a VarlenInfo"
            raise ArgumentError(NAME, "cu_seqlens_k", kind(cu_seqlens_k), expected)
        return cu_seqlens_q.native_arguments()
    if cu_seqlens_q is None:
        raise ArgumentTypeError(NAME, "cu_seqlens_q", "None", "integers: the first row of each sequence")
    return {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
