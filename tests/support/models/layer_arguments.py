"""The arguments of the course's Qwen2 layers, from a checkpoint, as dense or packed weights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mlx.core as mx

from tiny_llm.quantize import QuantizedWeights, dequantize_linear

from .checkpoints import checkpoint


def one_layer(**options: Any) -> SimpleNamespace:
    """A checkpoint with exact (float32) scales, and its first layer as `.layer`."""
    model = checkpoint(**{"scale_dtype": mx.float32, "layers": 1} | options)
    model.layer = model.model.layers[0]
    return model


def weights(layer: SimpleNamespace, precision: mx.Dtype, packed: bool) -> Any:
    if packed:
        return QuantizedWeights.from_mlx_layer(layer).astype(precision)
    return dequantize_linear(layer).astype(precision)


def attention_arguments(
    model: SimpleNamespace, precision: mx.Dtype = mx.float32, *, packed: bool
) -> dict[str, Any]:
    args, attention = model.args, model.layer.self_attn
    matrices = {name: getattr(attention, f"{name[1]}_proj") for name in ("wq", "wk", "wv", "wo")}
    biases = {f"b{name}": getattr(attention, f"{name}_proj").bias for name in "qkv"}
    return {
        "hidden_size": args.hidden_size,
        "num_heads": args.num_attention_heads,
        "num_kv_heads": args.num_key_value_heads,
        **{name: weights(layer, precision, packed) for name, layer in matrices.items()},
        **{name: bias.astype(precision) for name, bias in biases.items()},
        "max_seq_len": args.max_position_embeddings,
        "theta": args.rope_theta,
    }


def mlp_arguments(
    model: SimpleNamespace, precision: mx.Dtype = mx.float32, *, packed: bool
) -> dict[str, Any]:
    args, mlp = model.args, model.layer.mlp
    matrices = {f"w_{name}": getattr(mlp, f"{name}_proj") for name in ("gate", "up", "down")}
    return {
        "dim": args.hidden_size,
        "hidden_dim": args.intermediate_size,
        **{name: weights(layer, precision, packed) for name, layer in matrices.items()},
    }


def block_arguments(
    model: SimpleNamespace, precision: mx.Dtype = mx.float32, *, packed: bool
) -> dict[str, Any]:
    attention = attention_arguments(model, precision, packed=packed)
    attention["num_attention_heads"] = attention.pop("num_heads")
    mlp = mlp_arguments(model, precision, packed=packed)
    return {
        **attention,
        "intermediate_size": mlp.pop("hidden_dim"),
        **{name: value for name, value in mlp.items() if name != "dim"},
        "rms_norm_eps": model.args.rms_norm_eps,
        "w_input_layernorm": model.layer.input_layernorm.weight,
        "w_post_attention_layernorm": model.layer.post_attention_layernorm.weight,
    }
