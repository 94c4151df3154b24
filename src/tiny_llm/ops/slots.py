"""Keys and values of new tokens go to slots of a pool of pages, in place."""

import mlx.core as mx

from ..checks.arrays import check_arrays, check_integers
from ..checks.types import check_int, check_type
from ..errors import ArgumentError
from ..runtime.extension import load_extension
from .arguments import TYPES, StreamOrDevice

NAME = "store_kvcache"


def store_kvcache(
    key: mx.array,
    value: mx.array,
    k_cache: mx.array,
    v_cache: mx.array,
    slot_mapping: mx.array,
    block_size: int | None = None,
    *,
    layout: str = "PSHE",
    stream: StreamOrDevice = None,
) -> tuple[mx.array, mx.array]:
    """Write key and value [T, H, D] to their slots of the caches, in place -> (k_cache, v_cache).

    The caches are [P, page_size, H, D], or [P, H, page_size, D] with layout="PHSE", in the dtype of key and
    value: float32, float16 or bfloat16. Token t goes to slot slot_mapping[t] % page_size of page
    slot_mapping[t] // page_size; -1 skips it. block_size, if given, must be the page size of the caches.

    >>> import mlx.core as mx
    >>> import tiny_llm
    >>> k_cache, v_cache = mx.zeros((6, 16, 2, 64)), mx.zeros((6, 16, 2, 64))
    >>> key, value = mx.ones((3, 2, 64)), mx.ones((3, 2, 64))
    >>> k_cache, v_cache = tiny_llm.store_kvcache(key, value, k_cache, v_cache, mx.array([20, 21, -1]))
    >>> [k_cache[1, 4, 0, 0].item(), k_cache[1, 6, 0, 0].item()]
    [1.0, 0.0]

    Nothing is copied: the result is the memory of the given caches, which show the new tokens once the result
    is evaluated. An array that must keep the old tokens has to be a copy, and attention has to read the
    caches that come back. A slot out of range, or given twice, is an error, and then nothing is written.
    CPU only, and without derivatives.
    """
    check_arrays(NAME, key=key, value=value, k_cache=k_cache, v_cache=v_cache)
    check_integers(NAME, slot_mapping=slot_mapping)
    check_type(NAME, "layout", layout, str, "'PHSE' or 'PSHE'")
    check_type(NAME, "stream", stream, *TYPES["stream"])
    if block_size is not None:
        check_int(NAME, "block_size", block_size)
        if k_cache.ndim == 4 and k_cache.shape[1 if layout == "PSHE" else 2] != block_size:
            raise ArgumentError(NAME, "block_size", block_size, f"that of k_cache {k_cache.shape}")
    if slot_mapping.dtype not in (mx.int32, mx.int64):
        slot_mapping = slot_mapping.astype(mx.int64)
    store = load_extension().store_kvcache
    k_cache, v_cache = store(key, value, k_cache, v_cache, slot_mapping, layout=layout, stream=stream)
    return k_cache, v_cache
