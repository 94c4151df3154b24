"""Seeded inputs of attention tests. Sizes have defaults: a test names only those that matter to it."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

DTYPES = (mx.float32, mx.float16, mx.bfloat16)
DTYPE_IDS = ("f32", "f16", "bf16")
MASKS = ("none", "causal", "float", "bool", "per_key", "per_row")


def normal(*shape: int, dtype: mx.Dtype = mx.float32, seed: int = 0) -> mx.array:
    """N(0, 1) values."""
    return mx.array(np.random.default_rng(seed).standard_normal(shape, np.float32)).astype(dtype)


def qkv(
    *,
    batch: tuple[int, ...] = (2,),
    heads: int = 4,
    kv_heads: int = 2,
    L: int = 33,
    S: int | None = None,
    E: int = 32,
    dtype: mx.Dtype = mx.float32,
    seed: int = 0,
) -> tuple[mx.array, mx.array, mx.array]:
    """query [batch, heads, L, E], key and value [batch, kv_heads, S, E]; S is L unless given."""
    S = L if S is None else S
    query = normal(*batch, heads, L, E, dtype=dtype, seed=3 * seed)
    key, value = (normal(*batch, kv_heads, S, E, dtype=dtype, seed=3 * seed + i) for i in (1, 2))
    return query, key, value


def random_mask(*shape: int, keep: float = 0.7, seed: int = 0) -> mx.array:
    """A bool mask that is True for a share `keep` of its elements."""
    return mx.array(np.random.default_rng(seed).random(shape) < keep)


def with_nan(x: mx.array, where: mx.array) -> mx.array:
    """NaN in those rows of a tensor [..., rows, E]."""
    return mx.where(where[..., None], mx.nan, x)


def lengths(*values: int) -> mx.array:
    """An int32 array, as `q_lens`, `kv_start` and `kv_lens` take it."""
    return mx.array(values, dtype=mx.int32)


def make_mask(kind: str, batch: int, heads: int, L: int, S: int) -> mx.array | str | None:
    """A mask of that kind; every bool mask leaves some rows without any key."""
    if kind in ("none", "causal"):
        return None if kind == "none" else kind
    if kind == "float":
        return normal(batch, heads, L, S, seed=9)
    if kind == "per_row":
        return normal(batch, 1, L, 1, seed=9)
    rows = mx.arange(L)[:, None] % 5 != 3
    return random_mask(heads, L, S) & rows if kind == "bool" else random_mask(batch, 1, 1, S)
