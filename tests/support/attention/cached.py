"""The meaning of `cached_attention`: rotation, slice update and attention, one operation after the other."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from tiny_llm.attention import flash_attention
from tiny_llm.positional_encoding import RotationTable
from tiny_llm.runtime.extension import load_extension

from ..cases import normal

native = load_extension()
BASE, POSITIONS = 10000, 5000
HEADS, KV_HEADS, SIZE = 4, 2, 64

Cache = tuple[mx.array, mx.array, int]


def new_tokens(
    rows: int, L: int, heads: int, kv_heads: int, size: int, dtype: mx.Dtype = mx.float32
) -> tuple[mx.array, mx.array, mx.array]:
    """query [rows, L, heads, size], key and value [rows, L, kv_heads, size]."""
    key, value = (normal(rows, L, kv_heads, size, dtype=dtype, seed=seed) for seed in (1, 2))
    return normal(rows, L, heads, size, dtype=dtype), key, value


def filled_cache(
    capacity: int,
    length: int,
    kv_heads: int,
    size: int,
    *,
    rows: int = 1,
    dtype: mx.Dtype = mx.float32,
    seed: int = 3,
) -> Cache:
    """Keys and values, all of them random: those beyond `length` must make no difference."""
    shape = (rows, kv_heads, capacity, size)
    keys, values = (normal(*shape, dtype=dtype, seed=seed + 100 * i) for i in (1, 2))
    return keys, values, length


def case(
    lengths: Sequence[int | None],
    L: int,
    heads: int = HEADS,
    kv_heads: int = KV_HEADS,
    size: int = SIZE,
    dtype: mx.Dtype = mx.float32,
) -> tuple[tuple[mx.array, mx.array, mx.array], list[Cache | None]]:
    """New tokens, a row for each length, and caches of different capacities (None: a row without a cache)."""
    caches = [
        length if length is None
        else filled_cache(length + L + 5 * i, length, kv_heads, size, dtype=dtype, seed=i)
        for i, length in enumerate(lengths)
    ]  # fmt: skip
    return new_tokens(len(lengths), L, heads, kv_heads, size, dtype), caches


@functools.cache
def table_of(size: int) -> RotationTable:
    return RotationTable(size, POSITIONS, BASE)


def attend(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    caches: Sequence[Cache | None],
    offset: int | list[int],
    **options: Any,
) -> tuple[mx.array, list[tuple[mx.array, mx.array]]]:
    """The native operation, with the rotation table of that head size."""
    table = table_of(query.shape[-1])
    result: tuple[mx.array, list[tuple[mx.array, mx.array]]] = native.cached_attention(
        query, key, value, caches, table.cos, table.sin, offset, **options
    )
    return result


def flat(results: tuple[mx.array, list[tuple[mx.array, mx.array]]]) -> list[mx.array]:
    """The results as one list of arrays."""
    return [results[0], *(x for pair in results[1] for x in pair)]


def one_by_one(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    caches: Sequence[Cache | None],
    table: RotationTable,
    offset: int | list[int],
    *,
    scale: float | None = None,
    traditional: bool = False,
) -> tuple[mx.array, list[tuple[mx.array, mx.array]]]:
    """The same results by separate operations."""
    rows, L, _, _ = query.shape

    def rotated(x: mx.array) -> mx.array:
        y: mx.array = native.rope(x, table.cos, table.sin, offset, traditional=traditional, heads_first=True)
        return y

    queries, keys, values = rotated(query), rotated(key), value.swapaxes(1, 2)
    attended, grown, row = [], [], 0
    for cache in caches:
        if cache is None:
            attended.append(mx.zeros_like(queries[row : row + 1]))
            row += 1
            continue
        of_cache = slice(row, row + cache[0].shape[0])
        start = mx.array([cache[2]])
        new = [
            mx.slice_update(old, x[of_cache], start, [2]) for old, x in ((cache[0], keys), (cache[1], values))
        ]
        present = [x[:, :, : cache[2] + L] for x in new]
        attended.append(flash_attention(queries[of_cache], *present, scale=scale, mask="causal"))
        grown.append((new[0], new[1]))
        row = of_cache.stop
    assert row == rows
    return mx.flatten(mx.concatenate(attended).swapaxes(1, 2), -2, -1), grown
