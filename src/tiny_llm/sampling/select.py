"""The best tokens of a vocabulary without sorting it, and a draw: native where there are kernels."""

import mlx.core as mx

from ..runtime.extension import cpu_kernels


def argmax(logits: mx.array) -> mx.array:
    """Return the id [...] of the best of each row of `logits` [..., V], of equals the first one."""
    native = cpu_kernels(logits.dtype)
    ids: mx.array = mx.argmax(logits, axis=-1) if native is None else native.argmax(logits)
    return ids


def top_k(logits: mx.array, k: int) -> tuple[mx.array, mx.array]:
    """Return the k best of `logits` [..., V] and their ids [..., k]: falling, of equals the first one first.

    Without the extension it is open which of the equals at the border stay.
    """
    native = cpu_kernels(logits.dtype)
    if native is not None:
        best: tuple[mx.array, mx.array] = native.top_k(logits, k)
        return best
    ids = mx.argpartition(-logits, k - 1, axis=-1)[..., :k] if k < logits.shape[-1] else None
    if ids is not None:
        ids = mx.sort(ids, axis=-1)  # of equals the first one stays in front
        logits = mx.take_along_axis(logits, ids, axis=-1)
    order = mx.argsort(-logits, axis=-1)
    falling = mx.take_along_axis(logits, order, axis=-1)
    return falling, order if ids is None else mx.take_along_axis(ids, order, axis=-1)


def log_total(logits: mx.array) -> mx.array:
    """Return log(sum(e^logits)) of each row of `logits` [..., V]: float32 [..., 1], to be subtracted."""
    native = cpu_kernels(logits.dtype)
    if native is None:
        return mx.logsumexp(logits.astype(mx.float32), axis=-1, keepdims=True)
    total: mx.array = native.logsumexp(logits)
    return total[..., None]


def draw_by(logits: mx.array, key: mx.array | None) -> mx.array:
    """Return an id [...] for each row of `logits` [..., V], drawn with the probabilities softmax(logits)."""
    native = cpu_kernels(logits.dtype)
    if native is None:
        return mx.random.categorical(logits, key=key)
    ids: mx.array = native.categorical(logits, mx.random.uniform(shape=logits.shape[:-1], key=key))
    return ids
