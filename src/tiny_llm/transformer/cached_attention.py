"""Attention to all tokens of a cache: first the new keys and values go in, then the queries look at all."""

import mlx.core as mx

from ..attention import flash_attention, paged_attention, scaled_dot_product_attention_grouped
from ..kv_cache import TinyKvCache

Mask = mx.array | str | None


def attend_grouped(
    query: mx.array, key: mx.array, value: mx.array, cache: TinyKvCache, mask: Mask
) -> mx.array:
    """With every score in memory."""
    keys, values, _, mask = cache.update_and_fetch(key, value, query.shape[2], mask)
    return scaled_dot_product_attention_grouped(query, keys, values, mask=mask)


def attend_flash(query: mx.array, key: mx.array, value: mx.array, cache: TinyKvCache, mask: Mask) -> mx.array:
    """In tiles, without a matrix of scores."""
    keys, values, _, mask = cache.update_and_fetch(key, value, query.shape[2], mask)
    return flash_attention(query, keys, values, mask=mask)


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
