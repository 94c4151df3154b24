"""Masks of attention layers; True shows a key, as everywhere in tiny_llm and in `mx.fast`."""

from collections.abc import Sequence

import mlx.core as mx

from ..checks.arrays import check_integers, check_shape
from ..checks.types import check_size, check_type
from ..errors import ArgumentError, calling
from ..ops.dense import check_mask


def create_padding_mask(lengths: mx.array | Sequence[int], max_len: int) -> mx.array:
    """bool [B, 1, 1, max_len]: True for the first lengths[b] tokens of sequence b, which are real ones."""
    name = "create_padding_mask"
    check_size(name, "max_len", max_len, minimum=0)
    if not isinstance(lengths, mx.array):
        check_type(name, "lengths", lengths, Sequence, "a list of int or an mlx array")
        for length in lengths:
            check_size(name, "lengths", length, minimum=0)
        lengths = mx.array(list(lengths), mx.int32)
    check_integers(name, lengths=lengths)
    check_shape(name, "lengths", lengths.shape, ("B",))
    if _is_true(mx.any((lengths < 0) | (lengths > max_len))):
        raise ArgumentError(name, "lengths", lengths.tolist(), f"numbers from 0 to max_len, {max_len}")
    return mx.arange(max_len) < lengths[:, None, None, None]


def create_causal_mask(L: int, S: int | None = None) -> mx.array:
    """bool [L, S]: True where the last L of S tokens (default L) see themselves and earlier ones."""
    S = L if S is None else S
    for argument, size in (("L", L), ("S", S)):
        check_size("create_causal_mask", argument, size, minimum=0)
    return mx.arange(S) <= mx.arange(L)[:, None] + (S - L)


def visible_keys(length: int, *, left: int | None = None, right: int) -> mx.array:
    """bool [N, N]: the keys from `left` before a query (default all) to `right` after it."""
    query, key = mx.arange(length)[:, None], mx.arange(length)
    return (key >= query - (length if left is None else left)) & (key <= query + right)


def mask_of_scores(layer: str, mask: mx.array, scores: tuple[int, ...]) -> mx.array:
    """A mask [N, N], [B, N, N] or of rank 4 as one that broadcasts to `scores`, [B, heads, N, N]."""
    if isinstance(mask, mx.array):
        if mask.ndim not in (2, 3, 4):
            raise ArgumentError(layer, "attn_mask", mask.shape, "(N, N), (B, N, N) or (B, heads, N, N)")
        if mask.ndim == 3:
            mask = mask[:, None]
    with calling(layer, argument="attn_mask"):
        check_mask(layer, mask, scores)
    return mask


def _is_true(condition: mx.array) -> bool:
    try:
        return bool(condition)
    except ValueError:  # mx.compile traces it, so its value is unknown
        return False
