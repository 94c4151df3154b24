"""Qwen3: a norm on each query and key head, no biases, and a head size of its own; for every week."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from .kv_cache import TinyKvCache, TinyKvFullCache
from .kv_cache.base import Mask, NoCache
from .layer_norm import RMSNorm
from .paged_kv_cache import TinyKvPagedCache, TinyKvPagedPool
from .quantize import QuantizedWeights
from .stages import WEEK1, WEEK2, WEEK2_FLASH, WEEK3
from .transformer.layers import MLP, MultiHeadAttention, TransformerBlock
from .transformer.model import Transformer
from .transformer.ops import Ops
from .transformer.positions import Offset
from .transformer.weights import Weights


def assert_dtype(weights: mx.array, dtype: mx.Dtype) -> mx.array:
    """Return `weights`, which must be of that type."""
    if weights.dtype != dtype:
        raise ValueError(f"assert_dtype: weights: got {weights.dtype}, expected {dtype}")
    return weights


def assert_quantized_weights_dtype(weights: QuantizedWeights, dtype: mx.Dtype) -> QuantizedWeights:
    """Return `weights`, whose scales and biases must be of that type."""
    found = {weights.scales.dtype, weights.biases.dtype}
    if found != {dtype}:
        raise ValueError(
            f"assert_quantized_weights_dtype: weights: got scales {weights.scales.dtype} and biases "
            f"{weights.biases.dtype}, expected {dtype}"
        )
    return weights


class Qwen3MultiHeadAttention(MultiHeadAttention):
    """Attention of the new tokens to all that the cache then holds; q_norm and k_norm [head_dim]."""

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        wq: Weights,
        wk: Weights,
        wv: Weights,
        wo: Weights,
        q_norm: mx.array,
        k_norm: mx.array,
        max_seq_len: int = 32768,
        theta: int = 1000000,
        rms_norm_eps: float = 1e-5,
        use_flash_attention: bool = False,
        *,
        ops: Ops = WEEK2,
    ):
        sizes = (hidden_size, num_heads, num_kv_heads, head_dim)
        super().__init__(*sizes, wq, wk, wv, wo, None, None, None, max_seq_len, theta)
        self.q_norm = RMSNorm(head_dim, q_norm, rms_norm_eps)
        self.k_norm = RMSNorm(head_dim, k_norm, rms_norm_eps)
        self.use_flash_attention = use_flash_attention
        self.ops = WEEK2_FLASH if use_flash_attention else ops

    def __call__(self, x: mx.array, offsets: Offset, cache: TinyKvCache, mask: Mask = None) -> mx.array:
        """[B, L, hidden] -> the same; row b holds the tokens from position offsets[b] on."""
        return self.forward(x, offsets, cache, mask)


class Qwen3MLP(MLP):
    """The feed-forward layer."""


class Qwen3TransformerBlock(TransformerBlock):
    """One layer of the model."""

    def __init__(
        self,
        num_attention_heads: int,
        num_kv_heads: int,
        hidden_size: int,
        head_dim: int,
        intermediate_size: int,
        rms_norm_eps: float,
        wq: Weights,
        wk: Weights,
        wv: Weights,
        wo: Weights,
        q_norm: mx.array,
        k_norm: mx.array,
        w_gate: Weights,
        w_up: Weights,
        w_down: Weights,
        w_input_layernorm: mx.array,
        w_post_attention_layernorm: mx.array,
        max_seq_len: int = 32768,
        theta: int = 1000000,
        use_flash_attention: bool = False,
        *,
        ops: Ops = WEEK2,
    ):
        sizes = (hidden_size, num_attention_heads, num_kv_heads, head_dim)
        options = (max_seq_len, theta, rms_norm_eps, use_flash_attention)
        super().__init__(
            Qwen3MultiHeadAttention(*sizes, wq, wk, wv, wo, q_norm, k_norm, *options, ops=ops),
            Qwen3MLP(hidden_size, intermediate_size, w_gate, w_up, w_down),
            RMSNorm(hidden_size, w_input_layernorm, rms_norm_eps),
            RMSNorm(hidden_size, w_post_attention_layernorm, rms_norm_eps),
        )

    def __call__(self, x: mx.array, offset: Offset, cache: TinyKvCache, mask: Mask = None) -> mx.array:
        """[B, L, hidden] -> the same; row b holds the tokens from position offset[b] on."""
        return self.forward(x, offset, cache, mask)


class _Qwen3(Transformer):
    """What the models of all weeks have in common."""

    published_precision = mx.bfloat16
    block = Qwen3TransformerBlock

    def __init__(self, mlx_model: Any, dtype: mx.Dtype | None, **block_options: Any):
        super().__init__(mlx_model, dtype, ops=self.ops, **block_options)

    def block_arguments(self, layer: Any) -> dict[str, Any]:
        return self.common_arguments(layer) | {
            "head_dim": self.mlx_model.args.head_dim,
            "q_norm": layer.self_attn.q_norm.weight,
            "k_norm": layer.self_attn.k_norm.weight,
        }


class Qwen3ModelWeek1(_Qwen3):
    """Calculates the whole sequence anew at each call, on dense weights."""

    ops = WEEK1

    def __init__(self, mlx_model: Any, *, dtype: mx.Dtype | None = None):
        super().__init__(mlx_model, dtype)

    def __call__(self, inputs: mx.array) -> mx.array:
        """Token ids [B, L] -> logits [B, L, V]."""
        return self.forward(inputs, 0, [NoCache()] * self.num_hidden_layers)


class Qwen3Model(_Qwen3):
    """The model of week 2: calculates each token once; `enable_flash_attn` chooses how it attends."""

    ops = WEEK2

    def __init__(self, mlx_model: Any, enable_flash_attn: bool = False, *, dtype: mx.Dtype | None = None):
        super().__init__(mlx_model, dtype, use_flash_attention=enable_flash_attn)

    def create_kv_cache(self) -> list[TinyKvFullCache]:
        """One empty cache per layer, for one request."""
        return [TinyKvFullCache() for _ in range(self.num_hidden_layers)]

    def __call__(self, inputs: mx.array, offset: Offset, cache: Sequence[TinyKvCache]) -> mx.array:
        """Token ids [B, L], of which offset[b] are in the cache already -> logits [B, L, V]."""
        return self.forward(inputs, offset, cache)


class Qwen3ModelWeek3(_Qwen3):
    """All requests and all layers take their pages from `page_pool`."""

    ops = WEEK3

    def __init__(self, mlx_model: Any, page_size: int = 128, *, dtype: mx.Dtype | None = None):
        super().__init__(mlx_model, dtype)
        self.page_size = page_size
        self.page_pool = TinyKvPagedPool(page_size)

    def create_kv_cache(self) -> list[TinyKvPagedCache]:
        """One empty cache per layer, for one request."""
        return [TinyKvPagedCache(self.page_pool) for _ in range(self.num_hidden_layers)]

    def __call__(self, inputs: mx.array, offset: Offset, cache: Sequence[TinyKvCache]) -> mx.array:
        """Token ids [B, L], of which offset[b] are in the cache already -> logits [B, L, V]."""
        return self.forward(inputs, offset, cache)
