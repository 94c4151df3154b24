"""Attention with a cache: append the new keys and values, then attend to all of them."""

from collections.abc import Callable

import mlx.core as mx

from ..attention import flash_attention, paged_attention, scaled_dot_product_attention_grouped
from ..cache.base import TinyKvCache, check_tokens
from ..cache.batching import BatchingKvCache
from ..cache.reservation import reserve
from ..ops.arguments import Mask
from ..runtime.extension import cpu_kernels
from .qkv import QKV

Attention = Callable[..., mx.array]


def is_native(mask: Mask) -> bool:
    """Whether a step with this mask can be one native operation.

    To start many costs more time than small ones take, and MLX's operations between them run on one thread.
    """
    return isinstance(mask, str) and mask == "causal"


def attend_grouped(qkv: QKV, cache: TinyKvCache, mask: Mask) -> mx.array:
    """Grouped attention, with the whole score matrix in memory."""
    return _attend_dense(scaled_dot_product_attention_grouped, *qkv.heads_first(), cache, mask)


def attend_flash(qkv: QKV, cache: TinyKvCache, mask: Mask) -> mx.array:
    """FlashAttention: in tiles, without a score matrix. A causal step is one native operation."""
    if is_native(mask):
        attended = _attend_natively(qkv, cache)
        if attended is not None:
            return attended
    return _attend_dense(flash_attention, *qkv.heads_first(), cache, mask)


def attend_mlx(qkv: QKV, cache: TinyKvCache, mask: Mask) -> mx.array:
    """MLX's fused attention."""
    return _attend_dense(_mlx_attention, *qkv.heads_first(), cache, mask)


def _mlx_attention(query: mx.array, key: mx.array, value: mx.array, *, mask: Mask) -> mx.array:
    scale = query.shape[-1] ** -0.5
    return mx.fast.scaled_dot_product_attention(query, key, value, scale=scale, mask=mask)


def attend_paged(qkv: QKV, cache: TinyKvCache, mask: Mask) -> mx.array:
    """Attention over the pages of the cache, which are read in place."""
    query, key, value = qkv.heads_first()
    paged = cache.update_and_fetch_paged(key, value, query.shape[2], mask)
    attended = paged_attention(
        query,
        paged.key_pages,
        paged.value_pages,
        paged.block_table,
        paged.context_lens,
        paged.page_size,
        mask=paged.mask,
        on_fallback="allow",  # on a GPU
    )
    return _join_heads(attended)


def _attend_dense(
    attention: Attention, query: mx.array, key: mx.array, value: mx.array, cache: TinyKvCache, mask: Mask
) -> mx.array:
    if not isinstance(cache, BatchingKvCache):
        keys, values, _, mask = cache.update_and_fetch(key, value, query.shape[2], mask)
        return _join_heads(attention(query, keys, values, mask=mask))
    # The requests of a batch share no tokens. One dense array for the batch would be a padded copy of all
    # their tokens in each step, so each request attends to its own cache.
    rows = [_join_heads(mx.zeros_like(query[:1]))] * query.shape[0]
    check_tokens("BatchingKvCache", key, value)
    for slot, request in cache.active_caches(key.shape, mask).items():
        row = slice(slot, slot + 1)
        rows[slot] = _attend_dense(attention, query[row], key[row], value[row], request, "causal")
    return mx.concatenate(rows)


def _attend_natively(qkv: QKV, cache: TinyKvCache) -> mx.array | None:
    """RoPE, append and attention of all rows in one operation; None if the caches do not support it."""
    kernels = cpu_kernels(qkv.query.dtype)
    if kernels is None:
        return None
    key, value = qkv.key.swapaxes(1, 2), qkv.value.swapaxes(1, 2)
    check_tokens(type(cache).__name__, key, value)
    reservation = reserve(cache, key.shape, key.dtype)
    if reservation is None:
        return None
    rope, offsets = qkv.rope, qkv.offsets
    table = rope.table(offsets, qkv.query.shape[1])
    attended: mx.array
    attended, grown = kernels.cached_attention(
        qkv.query, qkv.key, qkv.value, reservation.slots, table.cos, table.sin, offsets,
        traditional=rope.traditional,
    )  # fmt: skip
    reservation.commit(grown)
    return attended


def _join_heads(x: mx.array) -> mx.array:
    """[B, H, L, D] -> [B, L, H * D]."""
    return mx.flatten(x.swapaxes(1, 2), -2, -1)
