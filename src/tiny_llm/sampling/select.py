"""Argmax, top-k, log-sum-exp and draw over a vocabulary: native kernels on the CPU, MLX elsewhere."""

import mlx.core as mx

from ..runtime.extension import cpu_kernels
from ..runtime.gpu import computes_on_gpu


def argmax(logits: mx.array) -> mx.array:
    """The id [...] of the largest of each row of `logits` [..., V]; the first one among equals."""
    native = cpu_kernels(logits.dtype)
    ids: mx.array = mx.argmax(logits, axis=-1) if native is None else native.argmax(logits)
    return ids


def top_k(logits: mx.array, k: int) -> tuple[mx.array, mx.array]:
    """The k largest of `logits` [..., V] and their ids [..., k], in descending order.

    Among equals the lowest id is first; without the extension, which of several logits equal to the k-th are
    returned is undefined.
    """
    native = cpu_kernels(logits.dtype)
    if native is not None:
        best: tuple[mx.array, mx.array] = native.top_k(logits, k)
        return best
    ids = mx.argpartition(-logits, k - 1, axis=-1)[..., :k] if k < logits.shape[-1] else None
    if ids is not None:
        ids = mx.sort(ids, axis=-1)  # among equals the first id stays first
        logits = mx.take_along_axis(logits, ids, axis=-1)
    order = mx.argsort(-logits, axis=-1)
    descending = mx.take_along_axis(logits, order, axis=-1)
    return descending, order if ids is None else mx.take_along_axis(ids, order, axis=-1)


def logsumexp(logits: mx.array) -> mx.array:
    """log(sum(e^logits)) of each row of `logits` [..., V] as float32 [..., 1]."""
    native = cpu_kernels(logits.dtype)
    if native is None:
        return mx.logsumexp(logits.astype(mx.float32), axis=-1, keepdims=True)
    total: mx.array = native.logsumexp(logits)
    return total[..., None]


def log_probabilities(
    logits: mx.array, ids: mx.array, most: int, total: mx.array | None = None
) -> tuple[mx.array, mx.array, mx.array]:
    """(Those of the tokens `ids` [N] in `logits` [N, V], the k most probable ids [N, k], those of these).

    k is `most`, or V if that is less. `total` is the `logsumexp` of the logits, if it is known.
    """
    if total is None:
        total = logsumexp(logits)
    own = mx.take_along_axis(logits, ids[:, None], axis=-1).astype(mx.float32) - total
    if most == 0:
        none = mx.zeros((logits.shape[0], 0))
        return own, none, none
    best, best_ids = top_k(logits, min(most, logits.shape[-1]))
    return own, best_ids, best.astype(mx.float32) - total


def categorical(logits: mx.array, key: mx.array | None) -> mx.array:
    """An id [...] for each row of `logits` [..., V], drawn with the probabilities softmax(logits)."""
    native = cpu_kernels(logits.dtype)
    if native is None:
        return mx.random.categorical(logits, key=key)
    ids: mx.array = native.categorical(logits, mx.random.uniform(shape=logits.shape[:-1], key=key))
    return ids


def categorical_at(logits: mx.array, uniform: mx.array) -> mx.array:
    """The id [...] at which the cumulative probability of each row of float32 `logits` [..., V] exceeds
    `uniform` [...], numbers in [0, 1): a draw that is a function of its arguments."""
    native = cpu_kernels(logits.dtype)
    if native is not None:
        ids: mx.array = native.categorical(logits, uniform)
        return ids
    sums = mx.cumsum(mx.softmax(logits, axis=-1), axis=-1)
    total = sums[..., -1:]
    place = (sums <= uniform[..., None] * total).sum(axis=-1)
    return mx.minimum(place, (sums < total).sum(axis=-1))  # rounding must not lead past the last token


def selected_logits(logits: mx.array, ids: mx.array) -> mx.array:
    """The logits [B, 1] of the tokens `ids` [B]; NaN for an argmax of a row with a NaN.

    On a GPU the largest of each row, which is NaN in the same cases: MLX compiles no kernel for it.
    """
    if computes_on_gpu():
        return mx.max(logits, axis=-1, keepdims=True)
    return mx.take_along_axis(logits, ids[:, None], axis=-1)
