"""The same random weights for all backends: values that MLX's packed form, Q4_0 and int4 of OpenVINO hold
exactly.

Q4_0 is (n - 8) * scale, MLX's packed form is n * scale + bias: with bias = -8 * scale they are equal. Such
weights have a mean of -scale / 2; every second group of a row has a negative scale, so that the means
cancel. A group of 64 becomes two blocks of Q4_0, and a weight takes 4.5 bits in all formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from benches.contestants import gguf
from tiny_llm.loading import Checkpoint, ModelConfig, load
from tiny_llm.loading.find import random_shortcut
from tiny_llm.loading.weights.tree import named_parts

MOSTLY_Q4_0 = 2  # `general.file_type` of llama.cpp
QUANTIZATION_VERSION = 2
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def load_shared(name: str) -> Checkpoint:
    """A model; if it is a random one, with weights that every format holds."""
    checkpoint = load(name)
    if random_shortcut(name):
        centre(checkpoint.mlx_model)
    return checkpoint


def centre(mlx_model: Any) -> None:
    """Replace the scales and biases of packed matrices by values that Q4_0 can hold."""
    for _, part in named_parts(mlx_model):
        if hasattr(part, "scales"):
            groups = mx.arange(part.scales.shape[1])
            part.scales = mx.where(groups % 2 == 0, part.scales, -part.scales)
            part.biases = -8 * part.scales
            mx.eval(part.scales, part.biases)


def write_gguf(config: ModelConfig, mlx_model: Any, path: Path) -> None:
    """The model as a file for llama.cpp, without a tokenizer, since requests are token ids."""
    gguf.write(path, metadata(config), tensors(mlx_model))


def metadata(config: ModelConfig) -> dict[str, gguf.Value]:
    family = config.model_type
    return {
        "general.architecture": family,
        "general.file_type": MOSTLY_Q4_0,
        "general.quantization_version": QUANTIZATION_VERSION,
        f"{family}.vocab_size": config.vocab_size,
        f"{family}.context_length": config.max_position_embeddings,
        f"{family}.embedding_length": config.hidden_size,
        f"{family}.block_count": config.num_hidden_layers,
        f"{family}.feed_forward_length": config.intermediate_size,
        f"{family}.attention.head_count": config.num_attention_heads,
        f"{family}.attention.head_count_kv": config.num_key_value_heads,
        f"{family}.attention.key_length": config.head_dim,
        f"{family}.attention.value_length": config.head_dim,
        f"{family}.attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        f"{family}.rope.freq_base": float(config.rope_theta),
        "tokenizer.ggml.model": "no_vocab",
    }


def tensors(mlx_model: Any) -> Iterator[gguf.Tensor]:
    for own_name, part in named_parts(mlx_model):
        name = gguf_name(own_name)
        if hasattr(part, "scales"):
            scales = np.repeat(_dense(part.scales).astype(np.float16), part.group_size // gguf.BLOCK, axis=1)
            yield gguf.packed(f"{name}.weight", _numbers(part.weight), scales)
        else:
            yield gguf.vector(f"{name}.weight", _dense(part.weight))
        if hasattr(part, "bias"):
            yield gguf.vector(f"{name}.bias", _dense(part.bias))


def gguf_name(name: str) -> str:
    """`model.layers.3.mlp.up_proj` is `blk.3.ffn_up`."""
    if not name.startswith("model.layers."):
        return NAMES[name]
    _, _, layer, name = name.split(".", 3)
    return f"blk.{layer}.{NAMES[name]}"


def _numbers(weight: mx.array) -> NDArray[np.uint8]:
    """The numbers [rows, columns] of packed words, each with eight numbers, the first in its lowest bits."""
    octets = np.array(weight).astype("<u4", copy=False).view(np.uint8)
    return np.stack([octets & 15, octets >> 4], axis=-1).reshape(len(octets), -1)


def _dense(x: mx.array) -> NDArray[np.float32]:
    return np.array(x.astype(mx.float32))
