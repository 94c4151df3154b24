"""The formula of attention, with the whole score matrix in memory, and checks of its arguments."""

import mlx.core as mx

from ..checks.arrays import check_floats, wrong_dtype
from ..checks.types import kind
from ..errors import ArgumentError
from .arguments import check_scale


def attend(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | mx.array | None,
    mask: mx.array | None,
) -> mx.array:
    """softmax(scale * query key^T + mask) value in float32, rounded once; leading axes broadcast.

    Written to be read: keys and values of half types are copied to float32 as a whole.
    """
    if query.size == 0 or key.size == 0:
        return mx.zeros((*query.shape[:-1], value.shape[-1]), query.dtype)
    scores = query.astype(mx.float32) @ key.astype(mx.float32).swapaxes(-1, -2)
    scores = scores * (query.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        hidden = mask == (False if mask.dtype == mx.bool_ else -mx.inf)
        scores = mx.where(hidden, -mx.inf, scores if mask.dtype == mx.bool_ else scores + mask)
    # Without a visible key the maximum is -inf, and -inf - -inf would be NaN.
    top = mx.max(scores, axis=-1, keepdims=True)
    weights = mx.exp(scores - mx.stop_gradient(mx.where(mx.isneginf(top), 0, top)))
    total = mx.sum(weights, axis=-1, keepdims=True)
    result = (weights @ value.astype(mx.float32)) / mx.where(total == 0, 1, total)
    return result.astype(query.dtype)


def check_inputs(
    function: str, query: mx.array, key: mx.array, value: mx.array, scale: float | mx.array | None
) -> None:
    """All checks except those of shapes."""
    check_floats(function, query=query, key=key, value=value)
    check_scale(function, scale)


def check_mask(function: str, mask: object, scores: tuple[int, ...]) -> None:
    if not isinstance(mask, mx.array):
        got = repr(mask) if isinstance(mask, str) else kind(mask)
        raise ArgumentError(function, "mask", got, "an mlx array or None")
    if mask.dtype != mx.bool_ and not mx.issubdtype(mask.dtype, mx.floating):
        raise wrong_dtype(function, "mask", mask.dtype, "bool (True: attend) or a floating point type")
    aligned = scores[len(scores) - mask.ndim :]
    fits = all(size in (1, expected) for size, expected in zip(mask.shape, aligned, strict=False))
    if mask.ndim > len(scores) or not fits:
        raise ArgumentError(function, "mask", mask.shape, f"a shape that broadcasts to {scores}")
