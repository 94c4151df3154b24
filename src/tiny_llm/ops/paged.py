"""Attention to keys and values in pages, which a block table assigns to the rows."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypedDict, Unpack

import mlx.core as mx

from ..checks.arrays import check_arrays, check_float_dtype, check_shape
from ..checks.types import check_int, check_type, kind
from ..errors import ArgumentError, ArgumentTypeError, UnsupportedError, calling
from ..runtime.extension import load_extension
from .arguments import Lengths, StreamOrDevice, Window, converted_options, read_scale, results
from .explanation import Explanation, explains
from .paged_info import PagedInfo

NAME = "paged_attention"

# Options that change what a call computes, and that the course does not have.
NOT_OF_THE_COURSE = ("layout", "causal", "window", "softcap", "sinks", "q_lens", "return_lse")


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
    deterministic: bool
    batch_invariant: bool
    schedule: str
    on_fallback: str
    k_quant: None
    v_quant: None
    stream: StreamOrDevice


def paged_attention(
    query: mx.array,
    key_pages: mx.array,
    value_pages: mx.array,
    block_table: mx.array | PagedInfo,
    context_lens: mx.array | None = None,
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
    deterministic: bool = True,
    batch_invariant: bool = False,
    schedule: str = "v2",
    on_fallback: str = "warn",
    k_quant: None = None,
    v_quant: None = None,
    stream: StreamOrDevice = None,
) -> Any:
    """Attention of queries to the tokens of each sequence, which are in pages, read in place.

    query [B, H_q, L, D], or packed [T, H_q, D]: rows cu_seqlens_q[b] .. cu_seqlens_q[b + 1] - 1 are sequence
    b, as in `flash_attention_varlen`; without cu_seqlens_q, each sequence has one row. The result has the
    shape and dtype of query; with `return_lse` also the log-sum-exp [B, H_q, L] or [T, H_q].

    key_pages and value_pages are [P, H, page_size, D], or [P, page_size, H, D] with layout="PSHE"; pages have
    any size, and page_size, if given, must be theirs. Token t of sequence b is slot t % page_size of page
    block_table[b, t // page_size], for t below context_lens[b]: all tokens, those of the queries included.
    block_table [B, max_pages] and context_lens [B] are integers. A `PagedInfo` in the place of block_table
    has both, the page size and cu_seqlens_q, checked once for all layers of a step.

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
    causal, window, softcap, sinks and all other options: as in `flash_attention`. A query that sees no token
        gives zeros. The kernels are batch invariant, packed or not, wherever the pages are.
    on_fallback: on a GPU, or with heads larger than 256, `attention_reference` runs on a copy of the pages.

    Queries and pages have one dtype, float32, float16 or bfloat16. A context beyond its row of the
    table, a negative one, or the id of no page for tokens that a query sees is an error, raised before
    anything is written; other entries of the table are not read, so pages before a window may be -1.
    The same holds for a batch [B, H_q, L, D], but a negative context is empty, like one of 0. A call of the
    course, a batch without layout, causal, window, softcap, sinks, q_lens and return_lse, hides the tokens of
    an id outside 0..P-1, and copies pages in another dtype than the query, or with gaps between the elements
    of a row; `explain` counts the copies. Any other call refuses such pages, and copies and converts nothing.
    Ids that are not evaluated at the call are checked at evaluation; on a GPU, rows that see one are NaN.
    Gradients of query, pages and sinks have kernels on the CPU, which read the pages in place. The gradient
    of a slot is the sum over the sequences that share it, in their order, and 0 where no query sees a token.
    mx.vmap maps any of the arrays. It copies pages that are not mapped for each entry only if those of the
    other kind are mapped, or if it maps a gradient of the pages. mx.jvp and derivatives of the gradient raise
    NotImplementedError; attention_reference on gathered keys and values has them.
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
        "deterministic": deterministic,
        "batch_invariant": batch_invariant,
        "schedule": schedule,
        "on_fallback": on_fallback,
        "k_quant": k_quant,
        "v_quant": v_quant,
        "stream": stream,
    }
    call = _checked(query, key_pages, value_pages, block_table, context_lens, page_size, scale, mask, options)
    out, lse = load_extension().attention_in_pages(*call.arrays, **call.options)
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
    block_table: mx.array | PagedInfo,
    context_lens: mx.array | None = None,
    page_size: int | None = None,
    scale: float | mx.array | None = None,
    mask: mx.array | str | None = None,
    **options: Unpack[PagedOptions],
) -> Explanation:
    call = _checked(query, key_pages, value_pages, block_table, context_lens, page_size, scale, mask, options)
    explanation = Explanation(**load_extension().explain_attention_in_pages(*call.arrays, **call.options))
    # A result in float32 is converted, too; a gradient is computed in float32 before it is converted.
    result = 4 * query.size if call.float32_bytes and query.dtype != mx.float32 else 0
    added = {"copies_bytes": 0, "workspace_bytes": result, "workspace_bytes_backward": result}
    sums = {name: getattr(explanation, name) + call.float32_bytes + more for name, more in added.items()}
    return replace(explanation, **sums)


class _Call(NamedTuple):
    """The arguments of the native functions, which check shapes and numbers."""

    arrays: tuple[mx.array | None, ...]  # query, key and value pages, table and contexts
    options: dict[str, Any]
    float32_bytes: int  # of the copies in float32 among them


def _checked(
    query: mx.array,
    key_pages: mx.array,
    value_pages: mx.array,
    block_table: mx.array | PagedInfo,
    context_lens: mx.array | None,
    page_size: int | None,
    scale: float | mx.array | None,
    mask: mx.array | str | None,
    options: Mapping[str, Any],
) -> _Call:
    if mask is not None and not (isinstance(mask, str) and mask == "causal"):
        got = repr(mask) if isinstance(mask, str) else kind(mask)
        raise UnsupportedError(NAME, "mask", got, "None or 'causal'; flash_attention takes masks")
    check_arrays(NAME, query=query, key_pages=key_pages, value_pages=value_pages)
    if unknown := options.keys() - PagedOptions.__annotations__.keys():
        known = ", ".join(PagedOptions.__annotations__)
        raise ArgumentTypeError(NAME, "", f"an unknown option {min(unknown)!r}", f"one of {known}")
    native = converted_options(NAME, options)
    layout = native.get("layout", "PHSE")
    check_type(NAME, "layout", layout, str, "'PHSE' or 'PSHE'")
    if isinstance(block_table, PagedInfo):
        _check_info(block_table, query, key_pages, context_lens, page_size, native)
        block_table, context_lens = block_table.native_arguments(native)
    else:
        check_arrays(NAME, block_table=block_table, context_lens=context_lens)
        _check_rows(query, block_table, native)
        if page_size is not None:
            check_int(NAME, "page_size", page_size)
            _check_page_size(key_pages.shape, page_size, layout)
    of_course = query.ndim == 4 and not any(_is_given(native.get(name)) for name in NOT_OF_THE_COURSE)
    copied_bytes = 0
    if of_course and not query.dtype == key_pages.dtype == value_pages.dtype:
        mixed = {"query": query, "key_pages": key_pages, "value_pages": value_pages}
        copied_bytes = 4 * sum(x.size for x in mixed.values() if x.dtype != mx.float32)
        query, key_pages, value_pages = _as_float32(**mixed)
    if isinstance(scale, mx.array):
        check_shape(NAME, "scale", scale.shape, ())
    native["scale"] = read_scale(NAME, scale)
    native["hide_absent"] = of_course
    native["causal"] = native.get("causal", False) or mask == "causal"
    return _Call((query, key_pages, value_pages, block_table, context_lens), native, copied_bytes)


def _check_info(
    info: PagedInfo,
    query: mx.array,
    key_pages: mx.array,
    context_lens: object,
    page_size: int | None,
    options: Mapping[str, Any],
) -> None:
    """The arguments that belong to `info` are not given again, and the arrays have its sizes."""
    for argument, given in (("context_lens", context_lens), ("cu_seqlens_q", options.get("cu_seqlens_q"))):
        if given is not None:
            raise ArgumentError(NAME, argument, kind(given), "None, because block_table is a PagedInfo")
    if page_size is not None and page_size != info.page_size:
        raise ArgumentError(NAME, "page_size", page_size, f"{info.page_size}, as in the PagedInfo")
    shape = query.shape
    if len(shape) != 3 or shape[0] != info.num_tokens:
        raise ArgumentError(NAME, "query", shape, f"({info.num_tokens}, H_q, D), as in the PagedInfo")
    pages = key_pages.shape
    _check_page_size(pages, info.page_size, options.get("layout", "PHSE"))
    info.check_pool(NAME, pages[0])


def _check_page_size(pages: tuple[int, ...], page_size: int, layout: str) -> None:
    if len(pages) != 4 or pages[1 if layout == "PSHE" else 2] != page_size:
        expected = ("P", page_size, "H", "D") if layout == "PSHE" else ("P", "H", page_size, "D")
        check_shape(NAME, "key_pages", pages, expected)


def _check_rows(query: mx.array, block_table: mx.array, options: dict[str, Any]) -> None:
    """Packed queries have cu_seqlens_q, by default one row for each sequence; a batch has none."""
    if query.ndim not in (3, 4):
        check_shape(NAME, "query", query.shape, ("B", "H_q", "L", "D"))
    if query.ndim == 4:
        if options.get("cu_seqlens_q") is not None:
            given = kind(options["cu_seqlens_q"])
            raise ArgumentError(NAME, "cu_seqlens_q", f"{given} for a batch", "None, or query (T, H_q, D)")
    elif options.get("cu_seqlens_q") is None:
        check_shape(NAME, "block_table", block_table.shape, ("B", "max_pages"))
        check_shape(NAME, "query", query.shape, (block_table.shape[0], "H_q", "D"))
        options["cu_seqlens_q"] = list(range(block_table.shape[0] + 1))


def _is_given(option: object) -> bool:
    return option is not None and option is not False and option != "PHSE"


def _as_float32(**arrays: mx.array) -> list[mx.array]:
    for argument, x in arrays.items():
        check_float_dtype(NAME, argument, x.dtype)
    return [x.astype(mx.float32) for x in arrays.values()]
