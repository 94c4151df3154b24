"""Attention to keys and values in pages, which a block table assigns to the rows."""

from collections.abc import Callable
from typing import NamedTuple

import mlx.core as mx

from ..checks.arrays import check_arrays, check_float_dtype, check_integers, check_shape
from ..checks.types import check_int, kind
from ..errors import ArgumentError, UnsupportedError
from ..runtime.extension import load_extension
from .arguments import read_scale
from .dense import attend
from .explanation import Explanation, explains

NAME = "paged_attention"


def paged_attention(
    query: mx.array,
    key_pages: mx.array,
    value_pages: mx.array,
    block_table: mx.array,
    context_lens: mx.array,
    page_size: int,
    scale: float | mx.array | None = None,
    mask: mx.array | str | None = None,
) -> mx.array:
    """Attention of `query` [B, H_q, L, D] to the tokens of each row -> [B, H_q, L, D] in the dtype of query.

    key_pages and value_pages [P, H, page_size, D]; token t of row b is slot t % page_size of page
    block_table[b, t // page_size], for t below context_lens[b]. block_table [B, max_pages] and context_lens
    [B] are integers; tokens in a page outside 0..P-1 do not exist. The mask is None or "causal", with the
    last query at the position of the last token. A query that sees no token gives zeros.

    Query and pages are float32, float16 or bfloat16, accumulated in float32. Pages in the dtype of query are
    read in place; for other pages, whatever is not float32 is copied to float32 first.
    On the CPU there are no derivatives (mx.grad, mx.jvp) and no mx.vmap: NotImplementedError. flash_attention
    on gathered keys and values has them.
    """
    call = _checked(query, key_pages, value_pages, block_table, context_lens, page_size, scale, mask)
    if mx.default_device() == mx.gpu:  # our kernel is for the CPU
        result = gathered_attention(*call)
    else:
        result = load_extension().attention_in_pages(*call)
    return result.astype(query.dtype)


@explains(paged_attention)
def _explain(
    function: Callable[..., mx.array],
    query: mx.array,
    key_pages: mx.array,
    value_pages: mx.array,
    block_table: mx.array,
    context_lens: mx.array,
    page_size: int,
    scale: float | mx.array | None = None,
    mask: mx.array | str | None = None,
) -> Explanation:
    call = _checked(query, key_pages, value_pages, block_table, context_lens, page_size, scale, mask)
    return Explanation(**load_extension().explain_attention_in_pages(*call))


class _Call(NamedTuple):
    """Checked arguments: floats of one dtype, integers as int32."""

    query: mx.array
    key_pages: mx.array
    value_pages: mx.array
    block_table: mx.array
    context_lens: mx.array
    scale: float
    causal: bool


def _checked(
    query: mx.array,
    key_pages: mx.array,
    value_pages: mx.array,
    block_table: mx.array,
    context_lens: mx.array,
    page_size: int,
    scale: float | mx.array | None,
    mask: mx.array | str | None,
) -> _Call:
    if mask is not None and not (isinstance(mask, str) and mask == "causal"):
        got = repr(mask) if isinstance(mask, str) else kind(mask)
        raise UnsupportedError(NAME, "mask", got, "None or 'causal'; flash_attention takes masks")
    floats = {"query": query, "key_pages": key_pages, "value_pages": value_pages}
    integers = {"block_table": block_table, "context_lens": context_lens}
    check_arrays(NAME, **floats, **integers)
    check_int(NAME, "page_size", page_size)
    check_shape(NAME, "query", query.shape, ("B", "H_q", "L", "D"))
    batch, query_heads, _, D = query.shape
    check_shape(NAME, "key_pages", key_pages.shape, ("P", "H", page_size, D))
    check_shape(NAME, "value_pages", value_pages.shape, key_pages.shape)
    check_shape(NAME, "block_table", block_table.shape, (batch, "max_pages"))
    check_shape(NAME, "context_lens", context_lens.shape, (batch,))
    heads = key_pages.shape[1]
    if heads == 0 or query_heads == 0 or query_heads % heads != 0:
        raise ArgumentError(NAME, "query", f"{query_heads} heads", f"a multiple of the {heads} of key_pages")
    if isinstance(scale, mx.array):
        check_shape(NAME, "scale", scale.shape, ())
    number = read_scale(NAME, scale)
    query, key_pages, value_pages = _of_one_type(floats)
    check_integers(NAME, **integers)
    block_table, context_lens = map(_as_int32, integers.values())
    number = D**-0.5 if number is None else number
    return _Call(query, key_pages, value_pages, block_table, context_lens, number, mask == "causal")


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


def _of_one_type(arrays: dict[str, mx.array]) -> list[mx.array]:
    for argument, x in arrays.items():
        check_float_dtype(NAME, argument, x.dtype)
    types = {x.dtype for x in arrays.values()}
    return [x if len(types) == 1 else x.astype(mx.float32) for x in arrays.values()]


def _as_int32(x: mx.array) -> mx.array:
    # Wider numbers must not wrap into the range of the pages.
    return x if x.dtype == mx.int32 else mx.clip(x.astype(mx.int64), -1, 2**31 - 1).astype(mx.int32)
