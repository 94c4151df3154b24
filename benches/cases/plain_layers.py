"""The layers of a block as MLX operations in float32: the expected result and the baseline of the layers."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from tiny_llm.loading import ModelConfig


class PlainBlock:
    """One block of a packed Qwen2 model, with `past` keys and values [1, heads, tokens, size] in its cache.

    In float32, the fastest type of MLX's products on a CPU.
    """

    def __init__(self, config: ModelConfig, mlx_model: Any, past: tuple[mx.array, mx.array] | None):
        self._config = config
        self._layer = mlx_model.model.layers[0]
        self._embedding = _Packed(mlx_model.model.embed_tokens)
        self._last_norm = _float32(mlx_model.model.norm.weight)
        attention, mlp = self._layer.self_attn, self._layer.mlp
        self._q, self._k, self._v, self._o = (
            _Packed(part) for part in (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
        )
        self._gate, self._up, self._down = (
            _Packed(part) for part in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        )
        self._first_norm = _float32(self._layer.input_layernorm.weight)
        self._second_norm = _float32(self._layer.post_attention_layernorm.weight)
        self._past = past and (_float32(past[0]), _float32(past[1]))

    def embedding(self, ids: mx.array) -> mx.array:
        return self._embedding.rows(ids)

    def norm(self, x: mx.array) -> mx.array:
        return self._normalise(x, self._first_norm)

    def rope(self, x: mx.array) -> mx.array:
        """[1, L, heads, size] -> [1, heads, L, size], as in tiny_llm."""
        return self._rotate(x.swapaxes(1, 2))

    def attention(self, x: mx.array) -> mx.array:
        query, key, value = (self._heads(layer(x)) for layer in (self._q, self._k, self._v))
        query, key = self._rotate(query), self._rotate(key)
        if self._past:
            key, value = (
                mx.concatenate(list(pair), axis=2) for pair in zip(self._past, (key, value), strict=True)
            )
        scale = self._config.head_dim**-0.5
        out = mx.fast.scaled_dot_product_attention(query, key, value, scale=scale, mask="causal")
        return self._o(mx.flatten(out.swapaxes(1, 2), -2, -1))

    def mlp(self, x: mx.array) -> mx.array:
        gate = self._gate(x)
        return self._down(gate * mx.sigmoid(gate) * self._up(x))

    def block(self, x: mx.array) -> mx.array:
        x = x + self.attention(self.norm(x))
        return x + self.mlp(self._normalise(x, self._second_norm))

    def head(self, x: mx.array) -> mx.array:
        """The last norm, and the logits of the vocabulary."""
        return self._embedding(self._normalise(x, self._last_norm))

    def _normalise(self, x: mx.array, weight: mx.array) -> mx.array:
        return mx.fast.rms_norm(x, weight, self._config.rms_norm_eps)

    def _heads(self, x: mx.array) -> mx.array:
        return mx.unflatten(x, -1, (-1, self._config.head_dim)).swapaxes(1, 2)

    def _rotate(self, x: mx.array) -> mx.array:
        offset = self._past[0].shape[2] if self._past else 0
        size, base = self._config.head_dim, self._config.rope_theta
        return mx.fast.rope(x, size, traditional=False, base=base, scale=1.0, offset=offset)


class _Packed:
    """A packed matrix and its bias, in float32."""

    def __init__(self, part: Any):
        self._weight = part.weight
        self._scales, self._biases = _float32(part.scales), _float32(part.biases)
        self._bias = _float32(part.bias) if hasattr(part, "bias") else None
        self._format = part.group_size, part.bits

    def __call__(self, x: mx.array) -> mx.array:
        out = mx.quantized_matmul(x, self._weight, self._scales, self._biases, True, *self._format)
        return out if self._bias is None else out + self._bias

    def rows(self, ids: mx.array) -> mx.array:
        return mx.dequantize(self._weight[ids], self._scales[ids], self._biases[ids], *self._format)


def _float32(x: mx.array) -> mx.array:
    wide = x.astype(mx.float32)
    mx.eval(wide)
    return wide
