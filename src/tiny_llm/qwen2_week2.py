"""Qwen2 of week 2: packed weights, a cache of keys and values, and the switch to FlashAttention."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from .kv_cache import TinyKvCache, TinyKvFullCache
from .kv_cache.base import Mask
from .layer_norm import RMSNorm
from .quantize import QuantizedWeights
from .stages import WEEK2, WEEK2_FLASH
from .transformer.layers import MLP, TransformerBlock
from .transformer.positions import Offset
from .transformer.qwen2 import Qwen2Attention, Qwen2Model


class Qwen2MultiHeadAttention(Qwen2Attention):
    """Attention of the new tokens to all that the cache then holds."""

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        num_kv_heads: int,
        wq: QuantizedWeights,
        wk: QuantizedWeights,
        wv: QuantizedWeights,
        wo: QuantizedWeights,
        bq: mx.array,
        bk: mx.array,
        bv: mx.array,
        max_seq_len: int = 32768,
        theta: int = 1000000,
        use_flash_attention: bool = False,
    ):
        sizes = (hidden_size, num_heads, num_kv_heads)
        super().__init__(*sizes, wq, wk, wv, wo, bq, bk, bv, max_seq_len, theta)
        self.use_flash_attention = use_flash_attention
        self.ops = WEEK2_FLASH if use_flash_attention else WEEK2

    def __call__(self, x: mx.array, offsets: Offset, cache: TinyKvCache, mask: Mask = None) -> mx.array:
        """[B, L, hidden] -> the same; row b holds the tokens from position offsets[b] on."""
        return self.forward(x, offsets, cache, mask)


class Qwen2MLP(MLP):
    """The feed-forward layer on packed weights."""


class Qwen2TransformerBlock(TransformerBlock):
    """One layer of the model."""

    def __init__(
        self,
        num_attention_heads: int,
        num_kv_heads: int,
        hidden_size: int,
        intermediate_size: int,
        rms_norm_eps: float,
        wq: QuantizedWeights,
        wk: QuantizedWeights,
        wv: QuantizedWeights,
        wo: QuantizedWeights,
        bq: mx.array,
        bk: mx.array,
        bv: mx.array,
        w_gate: QuantizedWeights,
        w_up: QuantizedWeights,
        w_down: QuantizedWeights,
        w_input_layernorm: mx.array,
        w_post_attention_layernorm: mx.array,
        max_seq_len: int = 32768,
        theta: int = 1000000,
        use_flash_attention: bool = False,
    ):
        sizes = (hidden_size, num_attention_heads, num_kv_heads)
        options = (max_seq_len, theta, use_flash_attention)
        super().__init__(
            Qwen2MultiHeadAttention(*sizes, wq, wk, wv, wo, bq, bk, bv, *options),
            Qwen2MLP(hidden_size, intermediate_size, w_gate, w_up, w_down),
            RMSNorm(hidden_size, w_input_layernorm, rms_norm_eps),
            RMSNorm(hidden_size, w_post_attention_layernorm, rms_norm_eps),
        )

    def __call__(self, x: mx.array, offset: Offset, cache: TinyKvCache, mask: Mask = None) -> mx.array:
        """[B, L, hidden] -> the same; row b holds the tokens from position offset[b] on."""
        return self.forward(x, offset, cache, mask)


class Qwen2ModelWeek2(Qwen2Model):
    """Calculates each token once; `enable_flash_attn` chooses how it then attends to the others."""

    ops = WEEK2
    block = Qwen2TransformerBlock

    def __init__(self, mlx_model: Any, enable_flash_attn: bool = False, *, dtype: mx.Dtype | None = None):
        super().__init__(mlx_model, dtype, use_flash_attention=enable_flash_attn)

    def create_kv_cache(self) -> list[TinyKvFullCache]:
        """One empty cache per layer, for one request."""
        return [TinyKvFullCache() for _ in range(self.num_hidden_layers)]

    def __call__(self, inputs: mx.array, offset: Offset, cache: Sequence[TinyKvCache]) -> mx.array:
        """Token ids [B, L], of which offset[b] are in the cache already -> logits [B, L, V]."""
        return self.forward(inputs, offset, cache)
