"""Qwen2 as a function of a flat dictionary of weights, for training: rows of several lengths in one pass.

The names are those of the checkpoint. Attention runs length by length, everything else on all tokens of the step.
"""

import math

import mlx.core as mx

from training.model.config import QUANTIZATION, ModelConfig

Weights = dict[str, mx.array]
GROUP, BITS = QUANTIZATION["group_size"], QUANTIZATION["bits"]


def initial_weights(config: ModelConfig, seed: int) -> Weights:
    key = mx.random.key(seed)
    hidden, inner = config.hidden_size, config.intermediate_size
    query, shared = hidden, config.num_key_value_heads * config.head_dim
    weights: Weights = {}

    def matrix(name: str, rows: int, columns: int, scale: float = 0.02) -> None:
        nonlocal key
        key, use = mx.random.split(key)
        weights[f"{name}.weight"] = mx.random.normal((rows, columns), key=use) * scale

    matrix("model.embed_tokens", config.vocab_size, hidden)
    into_stream = 0.02 / math.sqrt(2 * config.num_hidden_layers)
    for i in range(config.num_hidden_layers):
        layer = f"model.layers.{i}."
        for name, rows in (("q_proj", query), ("k_proj", shared), ("v_proj", shared)):
            matrix(f"{layer}self_attn.{name}", rows, hidden)
            weights[f"{layer}self_attn.{name}.bias"] = mx.zeros(rows)
        matrix(f"{layer}self_attn.o_proj", hidden, query, into_stream)
        matrix(f"{layer}mlp.gate_proj", inner, hidden)
        matrix(f"{layer}mlp.up_proj", inner, hidden)
        matrix(f"{layer}mlp.down_proj", hidden, inner, into_stream)
        weights[f"{layer}input_layernorm.weight"] = mx.ones(hidden)
        weights[f"{layer}post_attention_layernorm.weight"] = mx.ones(hidden)
    weights["model.norm.weight"] = mx.ones(hidden)
    return weights


def quantized(weight: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """Packed weight, scales and biases, exactly as they are exported."""
    return mx.quantize(weight.astype(mx.bfloat16), group_size=GROUP, bits=BITS)


def rounded(weight: mx.array) -> mx.array:
    """The weight after quantization, with a straight-through gradient."""
    near = mx.dequantize(*quantized(weight), group_size=GROUP, bits=BITS).astype(weight.dtype)
    return weight + mx.stop_gradient(near - weight)


def attend(query: mx.array, key: mx.array, value: mx.array, rows: int, config: ModelConfig) -> mx.array:
    """Causal attention of `rows` sequences: (rows * L, heads * E) -> the same shape."""
    length = query.shape[0] // rows
    shared, size = config.num_key_value_heads, config.head_dim
    group = config.num_attention_heads // shared

    def heads(x: mx.array) -> mx.array:
        return x.reshape(rows, length, -1, size).transpose(0, 2, 1, 3)

    def rotated(x: mx.array) -> mx.array:
        return mx.fast.rope(heads(x), size, traditional=False, base=config.rope_theta, scale=1.0, offset=0)

    query = (rotated(query) * size**-0.5).reshape(rows, shared, group * length, size)
    scores = query @ rotated(key).swapaxes(-1, -2)
    order = mx.arange(length)
    hidden = mx.where(order[:, None] >= order, 0.0, -1e9).astype(scores.dtype)
    weights = mx.softmax(scores + mx.tile(hidden, (group, 1)), axis=-1, precise=True)
    out = (weights @ heads(value)).reshape(rows, shared * group, length, size)
    return out.transpose(0, 2, 1, 3).reshape(rows * length, -1)


def forward(weights: Weights, tokens: list[mx.array], config: ModelConfig) -> mx.array:
    """Logits (T, vocabulary) of all positions of all rows, in the order of the list."""
    table = weights["model.embed_tokens.weight"]
    sizes = [rows.size for rows in tokens]
    edges = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
    x = table[mx.concatenate([rows.reshape(-1) for rows in tokens])]

    def norm(x: mx.array, name: str) -> mx.array:
        return mx.fast.rms_norm(x, weights[f"{name}.weight"], config.rms_norm_eps)

    for i in range(config.num_hidden_layers):
        layer = f"model.layers.{i}"

        def linear(x: mx.array, name: str, layer: str = layer) -> mx.array:
            y = x @ weights[f"{layer}.{name}.weight"].T
            bias = weights.get(f"{layer}.{name}.bias")
            return y if bias is None else y + bias

        h = norm(x, f"{layer}.input_layernorm")
        query, key, value = (mx.split(linear(h, f"self_attn.{n}_proj"), edges) for n in "qkv")
        seen = [
            attend(q, k, v, rows.shape[0], config)
            for q, k, v, rows in zip(query, key, value, tokens, strict=True)
        ]
        x = x + linear(mx.concatenate(seen), "self_attn.o_proj")
        h = norm(x, f"{layer}.post_attention_layernorm")
        gate = linear(h, "mlp.gate_proj")
        x = x + linear(gate * mx.sigmoid(gate) * linear(h, "mlp.up_proj"), "mlp.down_proj")
    return norm(x, "model.norm") @ table.T


def loss(
    weights: Weights,
    tokens: list[mx.array],
    learned: list[mx.array],
    config: ModelConfig,
    dtype: mx.Dtype,
    quantize: bool,
) -> mx.array:
    """Mean cross-entropy of the learned tokens; tokens (rows, L + 1), learned the same shape."""
    working = {
        name: (rounded(w) if quantize and w.ndim == 2 else w).astype(dtype) for name, w in weights.items()
    }
    logits = forward(working, [rows[:, :-1] for rows in tokens], config).astype(mx.float32)
    targets = mx.concatenate([rows[:, 1:].reshape(-1) for rows in tokens])
    mask = mx.concatenate([rows[:, 1:].reshape(-1) for rows in learned]).astype(mx.float32)
    picked = mx.take_along_axis(logits, targets[:, None], axis=-1).squeeze(-1)
    return ((mx.logsumexp(logits, axis=-1) - picked) * mask).sum() / mask.sum()
