"""Attention to keys and values in pages, which a block table assigns to the rows."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypedDict, Unpack

import mlx.core as mx

from ..checks.arrays import check_arrays, check_float_dtype, check_integers, check_same_dtype, check_shape
from ..checks.types import check_int, check_type, kind
from ..errors import ArgumentError, ArgumentTypeError, UnsupportedError, calling
from ..runtime.extension import load_extension
from .arguments import Lengths, StreamOrDevice, Window, converted_options, read_scale, results
from .dense import attend
from .explanation import Explanation, explains

NAME = "paged_attention"


class PagedOptions(TypedDict, total=False):
    """The keyword arguments of `paged_attention`."""

    layout: str
    causal: bool
    window: Window
    softcap: float | None
    sinks: mx.array | None
    q_lens: Lengths
    cu_seqlens_q: Lengths
    return_lse: bool
    stream: StreamOrDevice


def paged_attention(
    query: mx.array,
    key_pages: mx.array,
    value_pages: mx.array,
    block_table: mx.array,
    context_lens: mx.array,
    page_size: int | None = None,
    scale: float | mx.array | None = None,
    mask: mx.array | str | None = None,
    *,
    layout: str = "PHSE",
    causal: bool = False,
    window: Window = None,
    softcap: float | None = None,
    sinks: mx.array | None = None,
    q_lens: Lengths = None,
    cu_seqlens_q: Lengths = None,
    return_lse: bool = False,
    stream: StreamOrDevice = None,
) -> Any:
    """Attention of queries to the tokens of each sequence, which are in pages, read in place.

    query [B, H_q, L, D], or packed [T, H_q, D]: rows cu_seqlens_q[b] .. cu_seqlens_q[b + 1] - 1 are sequence
    b, as in `flash_attention_varlen`; without cu_seqlens_q, each sequence has one row. The result has the
    shape and dtype of query; with `return_lse` also the log-sum-exp [B, H_q, L] or [T, H_q].

    key_pages and value_pages are [P, H, page_size, D], or [P, page_size, H, D] with layout="PSHE"; pages have
    any size, and page_size, if given, must be theirs. Token t of sequence b is slot t % page_size of page
    block_table[b, t // page_size], for t below context_lens[b]: all tokens, those of the queries included.
    block_table [B, max_pages] and context_lens [B] are integers.

    >>> import mlx.core as mx
    >>> import tiny_llm
    >>> key_pages, value_pages = mx.ones((6, 2, 16, 64)), mx.ones((6, 2, 16, 64))
    >>> table, context_lens = mx.array([[4, 1], [0, -1]]), mx.array([20, 7])
    >>> query = mx.ones((6, 4, 64))  # five tokens after a prefix of 15, and one after 6
    >>> tiny_llm.paged_attention(
    ...     query, key_pages, value_pages, table, context_lens, causal=True, cu_seqlens_q=[0, 5, 6]
    ... ).shape
    (6, 4, 64)

    mask: None or "causal", with the last query at the position of the last token.
    q_lens: [B], how many of the rows of each sequence count; the others are 0.
    causal, window, softcap, sinks: as in `flash_attention`. A query that sees no token gives zeros.

    Packed queries and pages have one dtype, float32, float16 or bfloat16. A context beyond its row of the
    table, a negative one, or the id of no page for tokens that a query sees is an error, raised before
    anything is written; other entries of the table are not read, so pages before a window may be -1.
    A batch [B, H_q, L, D] follows the course: tokens in a page outside 0..P-1 do not exist, a context of 0 or
    less is empty, and pages in another dtype than the query are computed in float32, on a copy.
    On the CPU, gradients of query, pages and sinks have kernels, which read the pages in place. The gradient
    of a slot is the sum over the sequences that share it, in their order, and 0 where no query sees a token.
    mx.vmap maps any of the arrays. It copies pages that are not mapped for each entry only if those of the
    other kind are mapped, or if it maps a gradient of the pages. mx.jvp and derivatives of the gradient raise
    NotImplementedError; attention_reference on gathered keys and values has them.
    On a GPU, there are only batches, in plain operations.
    """
    options = {
        "layout": layout,
        "causal": causal,
        "window": window,
        "softcap": softcap,
        "sinks": sinks,
        "q_lens": q_lens,
        "cu_seqlens_q": cu_seqlens_q,
        "return_lse": return_lse,
        "stream": stream,
    }
    call = _checked(query, key_pages, value_pages, block_table, context_lens, page_size, scale, mask, options)
    if _on_gpu(stream):  # our kernel is for the CPU
        return _gathered(call).astype(query.dtype)
    out, lse = load_extension().attention_in_pages(*call.arrays, scale=call.scale, **call.options)
    return results(NAME, scale, out.astype(query.dtype), lse)


def paged_attention_decode(
    query: mx.array,
    k_cache: mx.array,
    v_cache: mx.array,
    block_tables: mx.array,
    context_lens: mx.array,
    scale: float | mx.array | None,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    block_size: int | None = None,
) -> mx.array:
    """Attention of one new token per sequence to its pages, with the arguments of MinivLLM.

    query [B, num_heads, head_dim], k_cache and v_cache [P, block_size, num_kv_heads, head_dim], block_tables
    [B, max_blocks] and context_lens [B] integers -> [B, num_heads, head_dim]. The sizes must be those of the
    arrays. A context of 0 gives zeros.

    >>> import mlx.core as mx
    >>> import tiny_llm
    >>> cache = mx.ones((6, 16, 2, 64))
    >>> query, tables, contexts = mx.ones((2, 4, 64)), mx.array([[4, 1], [0, -1]]), mx.array([20, 7])
    >>> tiny_llm.paged_attention_decode(query, cache, cache, tables, contexts, 64**-0.5, 4, 2, 64).shape
    (2, 4, 64)
    """
    name = "paged_attention_decode"
    check_arrays(name, query=query, k_cache=k_cache, v_cache=v_cache)
    for argument, size in (
        ("num_heads", num_heads),
        ("num_kv_heads", num_kv_heads),
        ("head_dim", head_dim),
    ):
        check_int(name, argument, size)
    check_shape(name, "query", query.shape, ("B", num_heads, head_dim))
    check_shape(name, "k_cache", k_cache.shape, ("P", "block_size", num_kv_heads, head_dim))
    check_shape(name, "v_cache", v_cache.shape, k_cache.shape)
    names = {"key_pages": "k_cache", "value_pages": "v_cache", "block_table": "block_tables"}
    with calling(name, page_size="block_size", **names):
        out: mx.array = paged_attention(
            query, k_cache, v_cache, block_tables, context_lens, block_size, scale, layout="PSHE"
        )
    return out


@explains(paged_attention)
def _explain(
    function: Callable[..., mx.array],
    query: mx.array,
    key_pages: mx.array,
    value_pages: mx.array,
    block_table: mx.array,
    context_lens: mx.array,
    page_size: int | None = None,
    scale: float | mx.array | None = None,
    mask: mx.array | str | None = None,
    **options: Unpack[PagedOptions],
) -> Explanation:
    call = _checked(query, key_pages, value_pages, block_table, context_lens, page_size, scale, mask, options)
    explanation = load_extension().explain_attention_in_pages
    return Explanation(**explanation(*call.arrays, scale=call.scale, **call.options))


class _Call(NamedTuple):
    """Checked arguments: floats of one dtype, integers as int32; options of the native function."""

    arrays: tuple[mx.array, mx.array, mx.array, mx.array, mx.array]
    scale: float | None  # None: the kernel's default
    options: dict[str, Any]


def _checked(
    query: mx.array,
    key_pages: mx.array,
    value_pages: mx.array,
    block_table: mx.array,
    context_lens: mx.array,
    page_size: int | None,
    scale: float | mx.array | None,
    mask: mx.array | str | None,
    options: Mapping[str, Any],
) -> _Call:
    if mask is not None and not (isinstance(mask, str) and mask == "causal"):
        got = repr(mask) if isinstance(mask, str) else kind(mask)
        raise UnsupportedError(NAME, "mask", got, "None or 'causal'; flash_attention takes masks")
    floats = {"query": query, "key_pages": key_pages, "value_pages": value_pages}
    integers = {"block_table": block_table, "context_lens": context_lens}
    check_arrays(NAME, **floats, **integers)
    if unknown := options.keys() - PagedOptions.__annotations__.keys():
        known = ", ".join(PagedOptions.__annotations__)
        raise ArgumentTypeError(NAME, "", f"an unknown option {min(unknown)!r}", f"one of {known}")
    native = converted_options(NAME, options)
    native["causal"] = native.get("causal", False) or mask == "causal"
    packed = query.ndim == 3
    check_shape(NAME, "query", query.shape, ("T", "H_q", "D") if packed else ("B", "H_q", "L", "D"))
    layout = native.get("layout", "PHSE")
    check_type(NAME, "layout", layout, str, "'PHSE' or 'PSHE'")
    size: int | str = "page_size"
    if page_size is not None:
        check_int(NAME, "page_size", page_size)
        size = page_size
    pages = ("P", size, "H", query.shape[-1]) if layout == "PSHE" else ("P", "H", size, query.shape[-1])
    check_shape(NAME, "key_pages", key_pages.shape, pages)
    check_shape(NAME, "value_pages", value_pages.shape, key_pages.shape)
    heads, query_heads = key_pages.shape[2 if layout == "PSHE" else 1], query.shape[-2 if packed else 1]
    if heads == 0 or query_heads == 0 or query_heads % heads != 0:
        raise ArgumentError(NAME, "query", f"{query_heads} heads", f"a multiple of the {heads} of key_pages")
    check_shape(NAME, "block_table", block_table.shape, ("B" if packed else query.shape[0], "max_pages"))
    check_shape(NAME, "context_lens", context_lens.shape, block_table.shape[:1])
    if packed and native.get("cu_seqlens_q") is None:
        check_shape(NAME, "query", query.shape, (block_table.shape[0], "H_q", "D"))
        native["cu_seqlens_q"] = list(range(block_table.shape[0] + 1))
    elif not packed and native.get("cu_seqlens_q") is not None:
        raise ArgumentError(NAME, "cu_seqlens_q", "rows of a batch", "None, or query (T, H_q, D)")
    if isinstance(scale, mx.array):
        check_shape(NAME, "scale", scale.shape, ())
    number = read_scale(NAME, scale)
    query, key_pages, value_pages = _of_one_type(floats, convert=not packed)
    check_integers(NAME, **integers)
    arrays = (query, key_pages, value_pages, _as_int32(block_table), _as_int32(context_lens))
    return _Call(arrays, number, {**native, "hide_absent": not packed})


def _on_gpu(stream: StreamOrDevice) -> bool:
    device = mx.default_device() if stream is None else getattr(stream, "device", stream)
    return bool(device == mx.gpu)


def _gathered(call: _Call) -> mx.array:
    """The plain form for a device without a kernel, where it has all that the call asks for."""
    plain = {"layout": "PHSE", "causal": call.options["causal"], "hide_absent": True}
    for name, value in call.options.items():
        if name not in ("causal", "stream") and value not in (plain.get(name), None, False):
            raise UnsupportedError(NAME, name, "an option on a GPU", "a batch without it, or stream=mx.cpu")
    scale = call.arrays[0].shape[-1] ** -0.5 if call.scale is None else call.scale
    return gathered_attention(*call.arrays, scale, call.options["causal"])


def gathered_attention(
    query: mx.array,
    key_pages: mx.array,
    value_pages: mx.array,
    block_table: mx.array,
    context_lens: mx.array,
    scale: float,
    causal: bool,
) -> mx.array:
    """The same in MLX operations, on a dense copy of each row's pages; the integers are int32."""
    pages, heads, page_size, _ = key_pages.shape
    if pages == 0:
        return mx.zeros_like(query)
    _, query_heads, L, _ = query.shape
    present = mx.logical_and(block_table >= 0, block_table < pages)  # [B, max_pages]
    table = mx.where(present, block_table, 0)
    position = mx.arange(block_table.shape[1] * page_size)
    lengths = context_lens[:, None, None]
    visible = (position < lengths) & mx.repeat(present, page_size, axis=1)[:, None]  # [B, 1, S]
    # Unwritten slots may hold NaN, and 0 * NaN is NaN.
    held = visible.swapaxes(1, 2)[:, None]  # [B, 1, S, 1]
    key, value = (mx.where(held, _in_order(x, table), 0) for x in (key_pages, value_pages))
    if causal:
        visible = visible & (position <= mx.arange(L)[:, None] + (lengths - L))
    grouped = mx.unflatten(query, 1, (heads, query_heads // heads))
    result = attend(grouped, key[:, :, None], value[:, :, None], scale, visible[:, None, None])
    return mx.flatten(result, 1, 2)


def _in_order(pages: mx.array, table: mx.array) -> mx.array:
    """Pages [P, H, page_size, D] in the order of `table` [B, n] -> [B, H, n * page_size, D]."""
    return mx.flatten(pages[table].swapaxes(1, 2), 2, 3)


def _of_one_type(arrays: dict[str, mx.array], *, convert: bool) -> list[mx.array]:
    for argument, x in arrays.items():
        check_float_dtype(NAME, argument, x.dtype)
        if not convert:
            check_same_dtype(NAME, argument, x.dtype, arrays["query"].dtype, "query")
    types = {x.dtype for x in arrays.values()}
    return [x if len(types) == 1 else x.astype(mx.float32) for x in arrays.values()]


def _as_int32(x: mx.array) -> mx.array:
    # Wider numbers must not wrap into the range of the pages.
    return x if x.dtype == mx.int32 else mx.clip(x.astype(mx.int64), -1, 2**31 - 1).astype(mx.int32)
