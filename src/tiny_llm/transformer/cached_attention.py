"""Attention to all tokens of a cache: first the new keys and values go in, then the queries look at all."""

from collections.abc import Callable

import mlx.core as mx

from ..attention import flash_attention, paged_attention, scaled_dot_product_attention_grouped
from ..kv_cache import BatchingKvCache, TinyKvCache
from ..kv_cache.base import Mask

Attention = Callable[..., mx.array]


def attend_grouped(
    query: mx.array, key: mx.array, value: mx.array, cache: TinyKvCache, mask: Mask
) -> mx.array:
    """With every score in memory."""
    return _attend_dense(scaled_dot_product_attention_grouped, query, key, value, cache, mask)


def attend_flash(query: mx.array, key: mx.array, value: mx.array, cache: TinyKvCache, mask: Mask) -> mx.array:
    """In tiles, without a matrix of scores."""
    return _attend_dense(flash_attention, query, key, value, cache, mask)


def _attend_dense(
    attention: Attention, query: mx.array, key: mx.array, value: mx.array, cache: TinyKvCache, mask: Mask
) -> mx.array:
    if not isinstance(cache, BatchingKvCache):
        keys, values, _, mask = cache.update_and_fetch(key, value, query.shape[2], mask)
        return attention(query, keys, values, mask=mask)
    # The requests of a batch have no token in common. One dense array for all of them would be a padded copy
    # of every token they hold, at each step; instead each attends to its own cache, where it lies.
    rows = [mx.zeros_like(query[:1])] * query.shape[0]
    for slot, request in cache.requests(key, value, mask).items():
        row = slice(slot, slot + 1)
        rows[slot] = _attend_dense(attention, query[row], key[row], value[row], request, "causal")
    return mx.concatenate(rows)


def attend_paged(query: mx.array, key: mx.array, value: mx.array, cache: TinyKvCache, mask: Mask) -> mx.array:
    """In the pages themselves, which hold float32."""
    keys, values = key.astype(mx.float32), value.astype(mx.float32)
    tokens = cache.update_and_fetch_paged(keys, values, query.shape[2], mask)
    result = paged_attention(
        query,
        tokens.key_pages,
        tokens.value_pages,
        tokens.block_table,
        tokens.context_lens,
        tokens.page_size,
        mask=tokens.mask,
    )
    return result.astype(query.dtype)
