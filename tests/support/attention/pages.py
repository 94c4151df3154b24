"""Keys and values in shuffled pages, with NaN wherever there is no token."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
import numpy as np

from ..tolerance import Float64, to_float64
from . import oracle


class Pages(NamedTuple):
    """Pages [P, H, page_size, D], block_table [B, max_pages] padded with -1, context_lens [B]."""

    key_pages: mx.array
    value_pages: mx.array
    block_table: mx.array
    context_lens: mx.array
    page_size: int


def paged(key: mx.array, value: mx.array, context_lens: list[int], page_size: int, *, seed: int = 0) -> Pages:
    """Pages with the first context_lens[b] tokens of each sequence b of key and value [B, H, S, D]."""
    counts = [-(-max(length, 0) // page_size) for length in context_lens]
    spare = 2
    ids = list(np.random.default_rng(seed).permutation(sum(counts) + spare))
    shape = (len(ids), key.shape[1], page_size, key.shape[3])
    pages = [np.full(shape, np.nan, np.float32) for _ in range(2)]
    tokens_of = [to_float64(dense) for dense in (key, value)]
    table = np.full((len(counts), max(counts, default=0) + 1), -1, np.int32)
    for b, count in enumerate(counts):
        for i in range(count):
            table[b, i] = ids.pop()
            tokens = slice(i * page_size, min((i + 1) * page_size, context_lens[b]))
            for target, dense in zip(pages, tokens_of, strict=True):
                target[table[b, i], :, : tokens.stop - tokens.start] = dense[b, :, tokens]
    key_pages, value_pages = (
        mx.array(x).astype(dense.dtype) for x, dense in zip(pages, (key, value), strict=True)
    )
    return Pages(key_pages, value_pages, mx.array(table), mx.array(context_lens, dtype=mx.int32), page_size)


def attention_by_sequence(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    context_lens: list[int],
    scale: float | None = None,
    causal: bool = False,
) -> Float64:
    """The oracle's answer for each sequence over its own tokens: [B, H_q, L, D]."""
    return np.stack(
        [
            oracle.attention(
                *(to_float64(x) for x in (query[b], key[b, :, : max(n, 0)], value[b, :, : max(n, 0)])),
                scale,
                causal=causal,
            ).out
            for b, n in enumerate(context_lens)
        ]
    )
