"""Rejection sampling of drafts: for every draft, tokens have the distribution of the verifying model."""

import mlx.core as mx


def count_accepted(
    target_probs: mx.array, draft_probs: mx.array, draft_ids: mx.array, uniform: mx.array
) -> mx.array:
    """How many of `draft_ids` [k], from the first, are accepted: each with the chance min(1, target / draft).

    `draft_probs` [k, V]: the distributions that the drafts were sampled from; `target_probs` [k + 1, V]:
    those of the model; `uniform` [k]: numbers in [0, 1).
    """
    columns = draft_ids[:, None]
    target = mx.take_along_axis(target_probs[:-1], columns, axis=-1).squeeze(-1)
    draft = mx.take_along_axis(draft_probs, columns, axis=-1).squeeze(-1)
    return count_leading(uniform * draft < target)


def residual_probs(target_probs: mx.array, draft_probs: mx.array, accepted: mx.array) -> mx.array:
    """What the token after `accepted` drafts is drawn from, [V], not normalised: max(0, target - draft).

    If all drafts are accepted, it is the last row of `target_probs`.
    """
    draft_probs = mx.concatenate([draft_probs, mx.zeros((1, target_probs.shape[-1]))])
    residual = mx.maximum(target_probs[accepted] - draft_probs[accepted], 0)
    return mx.where(residual.sum() > 0, residual, target_probs[accepted])  # rows equal up to rounding


def count_leading(flags: mx.array) -> mx.array:
    """The number of True in `flags` [k] before the first False."""
    return mx.cumprod(flags.astype(mx.int32)).sum()


def fit_vocabulary(logits: mx.array, size: int) -> mx.array:
    """`logits` [L, V'] cut or padded with -inf to `size`: models may differ in padding rows."""
    if logits.shape[-1] >= size:
        return logits[:, :size]
    missing = mx.full((logits.shape[0], size - logits.shape[-1]), -mx.inf, logits.dtype)
    return mx.concatenate([logits, missing], axis=-1)
