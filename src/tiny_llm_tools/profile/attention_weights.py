"""The attention of a real prompt: scores, weights and entropy of every layer and head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from tiny_llm.attention import causal_mask
from tiny_llm.basics import softmax
from tiny_llm.checks.arrays import check_floats
from tiny_llm.checks.types import check_attributes
from tiny_llm.errors import ArgumentError, NumericError
from tiny_llm.loading.progress import Progress, silent

from .observe import observed


@dataclass(frozen=True, slots=True, eq=False)
class LayerAttention:
    """What one layer computed for the L tokens of a prompt, in float32.

    scores [H, L, L]: scale * query key^T, -inf where the key is later than the query
    weights [H, L, L]: the softmax of each row of scores
    value [H, L, D]: the value that each head reads
    """

    scores: mx.array
    weights: mx.array
    value: mx.array


def record_attention(model: Any, tokens: Sequence[int], progress: Progress = silent) -> list[LayerAttention]:
    """Run a model on a prompt and return the attention of each of its layers.

    The model is one with a KV cache, such as `load_model` builds. Its own kernels compute the forward
    pass; the weights are recomputed in plain operations from the query and key of each layer, after RoPE.
    """
    name = "record_attention"
    check_attributes(name, "model", model, ("layers_inner", "create_kv_cache"), "a model with a KV cache")
    if not tokens:
        raise ArgumentError(name, "tokens", "none", "at least one")
    layers: list[LayerAttention] = []
    count = len(model.layers_inner)

    def record(layer: int, query: mx.array, key: mx.array, value: mx.array) -> None:
        progress("recording attention", layer, count)
        found = layer_attention(query[0], key[0], value[0])
        mx.eval(found.scores, found.weights, found.value)
        layers.append(found)

    cache = model.create_kv_cache()
    logits = observed(model, record).next_logits(mx.array([list(tokens)]), 0, cache)
    for each in cache:
        each.release()
    # A NaN anywhere reaches the last logits or a weight; a page of NaN would show nothing.
    if not mx.isfinite(logits).all().item() or any(mx.isnan(each.weights).any().item() for each in layers):
        raise NumericError
    return layers


def layer_attention(query: mx.array, key: mx.array, value: mx.array) -> LayerAttention:
    """query [H_q, L, D], key and value [H, L, D] -> causal scores and weights in the readable form."""
    heads, length, size = query.shape
    group = heads // key.shape[0]
    query, key, value = (each.astype(mx.float32) for each in (query, key, value))
    shared = mx.unflatten(query, 0, (-1, group)) @ key[:, None].swapaxes(-1, -2)
    scores = mx.flatten(shared, 0, 1) * size**-0.5 + causal_mask(length, length, mx.float32)
    return LayerAttention(scores, softmax(scores, -1), mx.repeat(value, group, axis=0))


def entropy(weights: mx.array) -> mx.array:
    """Bits of each row of weights [..., S] -> [...]: 0 for one key, log2(n) for n equal ones."""
    check_floats("entropy", weights=weights)
    return -(weights * mx.log2(mx.where(weights > 0, weights, 1))).sum(axis=-1)
