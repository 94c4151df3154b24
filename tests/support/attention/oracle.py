"""Attention in float64 NumPy, dense and slow: the reference of every kernel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
BLOCK = 2**20  # scores computed at a time: new memory for larger arrays takes longer than the arithmetic


class Attention(NamedTuple):
    """Output [B..., Hq, L, E] and natural log-sum-exp [B..., Hq, L]."""

    out: Array
    lse: Array


def window_limits(window: int | tuple[int, int] | None, causal: bool) -> tuple[float, float]:
    """How many keys to the left and right of a row's position it may see; infinity for no limit."""
    if window is None:
        return np.inf, np.inf
    if isinstance(window, int):
        window = (window - 1, 0) if causal else (window // 2, (window - 1) // 2)
    left, right = window
    return np.inf if left == -1 else left, np.inf if right == -1 else right


def visible_keys(
    L: int,
    S: int,
    *,
    n_q: int | None = None,
    n_k: int | None = None,
    start: int = 0,
    causal: bool = False,
    window: int | tuple[int, int] | None = None,
) -> NDArray[np.bool_]:
    """Which of S keys each of L query rows of one sequence sees: bool [L, S].

    The last of the n_q real rows has the position of the last of the n_k valid keys.
    """
    n_k = S - start if n_k is None else n_k
    n_q = L if n_q is None else n_q
    row = np.arange(L)[:, None]
    key = np.arange(S)[None, :] - start
    position = row + n_k - n_q
    left, right = window_limits(window, causal)
    seen = (key >= 0) & (key < n_k) & (row < n_q)
    if causal:
        seen &= key <= position
    return seen & (key >= position - left) & (key <= position + right)


def attention(
    q: Array,
    k: Array,
    v: Array,
    scale: float | None = None,
    mask: Array | NDArray[np.bool_] | str | None = None,
    *,
    causal: bool = False,
    window: int | tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    q_lens: NDArray[np.int64] | None = None,
    kv_start: NDArray[np.int64] | None = None,
    kv_lens: NDArray[np.int64] | None = None,
) -> Attention:
    """Attention of q [B..., Hq, L, E] over k, v [B..., Hkv, S, E], with every option of `flash_attention`."""
    *batch, heads, L, E = q.shape
    kv_heads, S = k.shape[-3:-1]
    k, v = (np.repeat(x, heads // kv_heads, axis=-3) for x in (k, v))
    causal = causal or mask == "causal" if isinstance(mask, str) else causal

    start = np.zeros(batch, np.int64) if kv_start is None else kv_start
    n_k = S - start if kv_lens is None else kv_lens
    n_q = np.full(batch, L, np.int64) if q_lens is None else q_lens
    seen = np.zeros((*batch, 1, L, S), bool)
    for b in np.ndindex(*batch):
        sizes = {"n_q": int(n_q[b]), "n_k": int(n_k[b]), "start": int(start[b])}
        seen[b] = visible_keys(L, S, **sizes, causal=causal, window=window)
    real_row = np.arange(L)[:, None] < np.asarray(n_q)[..., None, None, None]
    bias = np.zeros((1, 1))
    if isinstance(mask, np.ndarray):
        mask = np.broadcast_to(mask, (*batch, heads, L, S))
        seen = seen & (mask if mask.dtype == bool else mask != -np.inf)
        bias = bias if mask.dtype == bool else mask
    bias = np.broadcast_to(bias, (*batch, heads, L, S))
    sink = np.full((*batch, heads, L, 1), -np.inf)
    if sinks is not None:
        sink = np.where(real_row, sinks[:, None, None], sink)

    answer = Attention(np.zeros((*batch, heads, L, v.shape[-1])), np.zeros((*batch, heads, L)))
    scale = E**-0.5 if scale is None else scale
    count = max(1, BLOCK // max(1, answer.lse[..., :1].size * S))
    for rows in (slice(first, first + count) for first in range(0, L, count)):
        part = (x[..., rows, :] for x in (q, bias, seen, sink))
        answer.out[..., rows, :], answer.lse[..., rows] = _rows(*part, k, v, scale, softcap)
    return answer


def _rows(
    q: Array,
    bias: Array,
    seen: NDArray[np.bool_],
    sink: Array,
    k: Array,
    v: Array,
    scale: float,
    softcap: float | None,
) -> Attention:
    with np.errstate(all="ignore"):
        score = scale * (q @ k.swapaxes(-1, -2))
        if softcap is not None:
            score = softcap * np.tanh(score / softcap)
        score = np.where(seen, score + bias, -np.inf)
        top = np.maximum(score.max(axis=-1, keepdims=True, initial=-np.inf), sink)
        zero = np.where(top == -np.inf, 0.0, top)  # the subtrahend, safe where nothing is visible
        weight = np.exp(score - zero)
        total = weight.sum(axis=-1, keepdims=True) + np.exp(sink - zero)
        out = np.where(total == 0, 0.0, _weigh(weight, v, seen) / np.where(total == 0, 1.0, total))
        return Attention(out, (zero + np.log(total))[..., 0])


def _weigh(weight: Array, v: Array, seen: NDArray[np.bool_]) -> Array:
    """weight @ v without the values of hidden keys: 0 * NaN would be NaN."""
    finite = np.isfinite(v)
    out = np.asarray(weight @ np.where(finite, v, 0.0))
    if not finite.all():
        # One by one, but these keys only: the terms of all keys would be L x S x E numbers.
        keys = np.flatnonzero(~finite.all(axis=(*range(v.ndim - 2), -1)))
        values = np.where(finite, 0.0, v)[..., None, keys, :]
        out += np.where(seen[..., keys, None], weight[..., keys, None] * values, 0.0).sum(axis=-2)
    return out


def merge(parts: list[Attention]) -> Attention:
    """Attention over the union of disjoint key sets, from the attention over each."""
    lse = np.stack([part.lse for part in parts])
    top = lse.max(axis=0)
    zero = np.where(top == -np.inf, 0.0, top)
    with np.errstate(divide="ignore"):
        weight = np.exp(lse - zero)
        total = weight.sum(axis=0)
        out = sum(w[..., None] * part.out for w, part in zip(weight, parts, strict=True))
        return Attention(out / np.where(total == 0, 1.0, total)[..., None], zero + np.log(total))
