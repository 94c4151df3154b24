"""Qwen2 in float64 NumPy, written from the definition."""

from __future__ import annotations

from types import SimpleNamespace

import mlx.core as mx
import numpy as np

from ..attention import oracle
from ..products.quantized import Packed
from ..tolerance import Float64, to_float64


def dense(layer: SimpleNamespace) -> Float64:
    """The dequantized weights of a layer."""
    return Packed(layer.scales, layer.biases, layer.group_size, layer.bits, layer.weight).dense()


def product(x: Float64, layer: SimpleNamespace) -> Float64:
    bias = to_float64(layer.bias) if hasattr(layer, "bias") else 0.0
    return x @ dense(layer).T + bias


def rotate(x: Float64, start: int, theta: float) -> Float64:
    """x [B, L, H, D]: pair (i, i + D / 2) is rotated by position * theta ** (-2 i / D)."""
    half = x.shape[-1] // 2
    position = np.arange(start, start + x.shape[1])[:, None, None]
    angle = position * theta ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate(
        [a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=-1
    )


def attention(
    x: Float64, layer: SimpleNamespace, args: SimpleNamespace, mask: str | None = "causal"
) -> Float64:
    """The attention layer on x [B, L, hidden], positions from 0 on."""
    heads, kv_heads = args.num_attention_heads, args.num_key_value_heads

    def split(projection: SimpleNamespace, count: int) -> Float64:
        return product(x, projection).reshape(*x.shape[:2], count, -1)

    query = rotate(split(layer.q_proj, heads), 0, args.rope_theta)
    key = rotate(split(layer.k_proj, kv_heads), 0, args.rope_theta)
    value = split(layer.v_proj, kv_heads)
    out = oracle.attention(*(each.swapaxes(1, 2) for each in (query, key, value)), None, mask).out
    return product(out.swapaxes(1, 2).reshape(*x.shape[:2], -1), layer.o_proj)


def feed_forward(x: Float64, layer: SimpleNamespace) -> Float64:
    gate = product(x, layer.gate_proj)
    return product(gate / (1 + np.exp(-gate)) * product(x, layer.up_proj), layer.down_proj)


def normalise(x: Float64, weight: mx.array, eps: float) -> Float64:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * to_float64(weight)


def block(x: Float64, layer: SimpleNamespace, args: SimpleNamespace, mask: str | None = "causal") -> Float64:
    eps = args.rms_norm_eps
    x = x + attention(normalise(x, layer.input_layernorm.weight, eps), layer.self_attn, args, mask)
    return x + feed_forward(normalise(x, layer.post_attention_layernorm.weight, eps), layer.mlp)


def logits(inputs: mx.array, model: SimpleNamespace) -> Float64:
    """Token ids [B, L] -> [B, L, V]."""
    body, args = model.model, model.args
    x = dense(body.embed_tokens)[np.array(inputs)]
    for layer in body.layers:
        x = block(x, layer, args)
    head = body.embed_tokens if args.tie_word_embeddings else model.lm_head
    return normalise(x, body.norm.weight, args.rms_norm_eps) @ dense(head).T
