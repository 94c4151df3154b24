"""Small random checkpoints of each family, in the form that a loader returns."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.loading.find import EMBEDDED
from tiny_llm.models.names import FAMILIES

VOCABULARY = 96
# Families with layers of their own; those of the others are among them.
each_family = pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])


class Numbers:
    """A seeded source of vectors and layers; the layers are quantized in one format."""

    def __init__(self, seed: int, bits: int | None, group_size: int, scale_dtype: mx.Dtype):
        self._generator = np.random.default_rng(seed)
        self._format = {"bits": bits, "group_size": group_size}
        self._scale_dtype = scale_dtype

    def vector(self, size: int, mean: float = 0.0) -> mx.array:
        return mx.array((mean + 0.2 * self._generator.standard_normal(size)).astype(np.float32))

    def norm(self, size: int) -> SimpleNamespace:
        return SimpleNamespace(weight=self.vector(size, mean=1.0))

    def layer(self, outputs: int, inputs: int, bias: bool = False, gain: float = 1.0) -> SimpleNamespace:
        """A layer whose outputs have about size `gain` for inputs of unit size."""
        dense = gain * inputs**-0.5 * self._generator.standard_normal((outputs, inputs))
        layer = self._stored(mx.array(dense.astype(np.float32)))
        if bias:
            layer.bias = self.vector(outputs)
        return layer

    def _stored(self, dense: mx.array) -> SimpleNamespace:
        if self._format["bits"] is None:
            return SimpleNamespace(weight=dense.astype(self._scale_dtype))
        weight, scales, biases = mx.quantize(dense, **self._format)
        return SimpleNamespace(
            weight=weight,
            scales=scales.astype(self._scale_dtype),
            biases=biases.astype(self._scale_dtype),
            **self._format,
        )


def checkpoint(
    family: str = "qwen2",
    *,
    tied: bool = True,
    bits: int | None = 4,
    group_size: int = 64,
    scale_dtype: mx.Dtype = mx.bfloat16,
    layers: int = 3,
    intermediate_size: int = 192,
    heads: int = 4,
    max_position_embeddings: int = 512,
    seed: int = 0,
    vocabulary: int = VOCABULARY,
) -> SimpleNamespace:
    """A model of hidden size 128 with 4 query heads and 2 key/value heads.

    A head has the size 32, or 64 where a family has its own. Without `bits` its layers are dense, in
    `scale_dtype`.
    """
    numbers = Numbers(seed, bits, group_size, scale_dtype)
    hidden, kv_heads, inner = 128, 2, intermediate_size
    head_dim = 64 if FAMILIES[family].own_head_dim else hidden // heads
    args = SimpleNamespace(
        model_type=family,
        num_hidden_layers=layers,
        hidden_size=hidden,
        vocab_size=vocabulary,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=inner,
        rms_norm_eps=1e-6,
        max_position_embeddings=max_position_embeddings,
        rope_theta=20000,  # not the default of RoPE
        tie_word_embeddings=tied,
    )

    def block() -> SimpleNamespace:
        bias = FAMILIES[family].qkv_bias
        attention = SimpleNamespace(
            q_proj=numbers.layer(heads * head_dim, hidden, bias),
            k_proj=numbers.layer(kv_heads * head_dim, hidden, bias),
            v_proj=numbers.layer(kv_heads * head_dim, hidden, bias),
            o_proj=numbers.layer(hidden, heads * head_dim),
        )
        if FAMILIES[family].head_norms:
            attention.q_norm, attention.k_norm = numbers.norm(head_dim), numbers.norm(head_dim)
        mlp = SimpleNamespace(
            gate_proj=numbers.layer(inner, hidden),
            up_proj=numbers.layer(inner, hidden),
            down_proj=numbers.layer(hidden, inner),
        )
        return SimpleNamespace(
            self_attn=attention,
            mlp=mlp,
            input_layernorm=numbers.norm(hidden),
            post_attention_layernorm=numbers.norm(hidden),
        )

    model = SimpleNamespace(
        args=args,
        model=SimpleNamespace(
            embed_tokens=numbers.layer(vocabulary, hidden, gain=8.0),
            layers=[block() for _ in range(layers)],
            norm=numbers.norm(hidden),
        ),
    )
    if not tied:
        model.lm_head = numbers.layer(vocabulary, hidden, gain=2.0)
    return model


def tokens(rows: int, length: int, seed: int = 0) -> mx.array:
    """Random token ids [rows, length]."""
    return mx.array(np.random.default_rng(seed).integers(0, VOCABULARY, (rows, length)), dtype=mx.int32)


def broken_copy(folder: Path) -> Path:
    """The embedded model with NaN in its last norm, so that every logit is NaN."""
    shutil.copytree(EMBEDDED, folder)
    file = folder / "model.safetensors"
    weights = dict(mx.load(str(file)))
    weights["model.norm.weight"] *= mx.nan
    mx.save_safetensors(str(file), weights, {"format": "mlx"})
    return folder
