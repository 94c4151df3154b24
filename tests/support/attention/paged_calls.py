"""Sequences of all kinds over pages, and the gradients of a call with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from tiny_llm.attention import paged_attention

from ..cases import normal
from .pages import Pages, paged

# A decoded row, a prompt, no rows, hidden rows, no keys.
ROWS, CONTEXTS = [0, 1, 71, 71, 76, 78], [131, 70, 7, 3, 0]


def pools(
    page_size: int = 16,
    *,
    shared: bool = False,
    dtype: mx.Dtype = mx.float32,
    E: int = 32,
    contexts: list[int] = CONTEXTS,
) -> Pages:
    """Keys and values, with NaN in free slots; `shared`: all begin with the pages of the first context."""
    longest = max([*contexts, 1])
    key, value = (normal(len(contexts), 2, longest, E, dtype=dtype, seed=seed) for seed in (1, 2))
    pages = paged(key, value, list(contexts), page_size)
    if shared:
        table = np.array(pages.block_table)
        for b in range(1, len(contexts)):
            whole = contexts[b] // page_size
            table[b, :whole] = table[0, :whole]
        pages = pages._replace(block_table=mx.array(table))
    return pages


def slots_outside(pages: Pages) -> Pages:
    return pages._replace(
        key_pages=mx.contiguous(pages.key_pages.swapaxes(1, 2)),
        value_pages=mx.contiguous(pages.value_pages.swapaxes(1, 2)),
    )


def cotangents(query: mx.array) -> list[mx.array]:
    return [normal(*query.shape, dtype=query.dtype, seed=11), normal(*query.shape[:-1], seed=12)]


def gradients(
    query: mx.array,
    pages: Pages,
    sinks: mx.array | None = None,
    function: Callable[..., Any] = paged_attention,
    **options: Any,
) -> list[mx.array]:
    """dQ, dK, dV and, with sinks, dsinks, for cotangents of the output and the log-sum-exp."""

    def both(
        query: mx.array, key_pages: mx.array, value_pages: mx.array, sinks: mx.array | None = None
    ) -> list[mx.array]:
        rest = pages[2:4]
        return list(function(query, key_pages, value_pages, *rest, sinks=sinks, return_lse=True, **options))

    inputs = [query, *pages[:2]] + ([] if sinks is None else [sinks])
    return mx.vjp(both, inputs, cotangents(query))[1]


def packed_gradients(
    query: mx.array, pages: Pages, sinks: mx.array | None = None, **options: Any
) -> list[mx.array]:
    return gradients(query, pages, sinks, **{"causal": True, "cu_seqlens_q": ROWS} | options)
