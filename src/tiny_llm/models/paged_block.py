"""A block on new tokens of requests whose keys and values are in pages, as one native operation.

The operation is that of a packed step (`packed.py`), bitwise equal to running the layers one by one. Here
each layer has pages of its own in one pool, so each makes its own step.
"""

import mlx.core as mx

from ..cache.base import TinyKvCache
from ..cache.batching import BatchingKvCache
from ..cache.paged import TinyKvPagedCache
from ..ops.arguments import Mask
from ..runtime.extension import cpu_kernels, load_extension
from .cached_attention import attend_paged
from .cpu_block import fused_operation
from .layers import TransformerBlock
from .qkv import Offset, row_offsets


def run_on_pages(
    block: TransformerBlock, x: mx.array, offset: Offset, cache: TinyKvCache, mask: Mask, last_only: bool
) -> mx.array | None:
    """x [B, L, hidden] -> output of the block [B, L, hidden]; None if no native operation applies.

    There is none for `last_only` with several tokens. The rows of idle slots of a batch are 0.
    """
    if cpu_kernels(x.dtype) is None or x.ndim != 3 or x.size == 0 or (last_only and x.shape[1] > 1):
        return None
    attention = block.self_attn
    if attention.ops.attend is not attend_paged or not (isinstance(mask, str) and mask == "causal"):
        return None
    rows, length = x.shape[:2]
    shape = (rows, attention.num_kv_heads, length, attention.head_dim)
    caches = _paged_caches(cache, shape)
    starts = row_offsets(offset, rows=rows)
    if not caches or any(_start_of(starts, row) != cache.offset for row, cache in caches.items()):
        return None
    if not attention.rope.has_positions([cache.offset for cache in caches.values()], length):
        return None  # the layers raise the error
    fused = fused_operation(block, x.dtype, attention.rope.table(starts, length))
    if fused is None:
        return None
    pool = next(iter(caches.values())).pool
    pool.check_shape(shape, x.dtype)  # before a page is allocated
    for each in caches.values():
        each.extend(length)
    keys, values = pool.make_storage(attention.num_kv_heads, attention.head_dim, x.dtype)
    step = load_extension().PackedStep(
        [length] * len(caches),
        [each.offset for each in caches.values()],
        [each.page_ids for each in caches.values()],
        page_size=pool.page_size,
        num_pages=keys.shape[0],
    )
    active = None if len(caches) == rows else mx.array(list(caches))
    packed = x if active is None else x[active]
    y: mx.array
    # -1 would make MLX add a reshape even where the shape is unchanged.
    joined = packed.reshape(1, len(caches) * length, x.shape[2])
    y, (keys,), (values,) = load_extension().DecoderBlock.packed(
        [fused.operation], joined, [keys], [values], step
    )
    pool.replace_storage(keys, values)
    y = y.reshape(packed.shape)
    if active is None:
        return y
    result = mx.zeros_like(x)
    result[active] = y
    return result


def _start_of(starts: int | list[int], row: int) -> int:
    """The position of the first new token of a row."""
    return starts if isinstance(starts, int) else starts[row]


def _paged_caches(cache: TinyKvCache, shape: tuple[int, ...]) -> dict[int, TinyKvPagedCache]:
    """The caches by row of the batch, idle slots left out; none unless all share a pool."""
    # Subclasses may append tokens in another way.
    caches: dict[int, TinyKvCache] = {}
    if type(cache) is TinyKvPagedCache and shape[0] == 1:
        caches = {0: cache}
    if type(cache) is BatchingKvCache:
        caches = cache.active_caches(shape, "causal")
    paged = {row: each for row, each in caches.items() if type(each) is TinyKvPagedCache}
    shared = len({id(each.pool) for each in paged.values()}) == 1
    return paged if shared and len(paged) == len(caches) else {}
