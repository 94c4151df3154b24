"""FlashAttention for MLX and the readable layers around it."""

import mlx.core as mx

from . import attention, basics, embedding, layer_norm, positional_encoding
from .attention import (
    Explanation,
    SimpleMultiHeadAttention,
    attention_reference,
    causal_mask,
    explain,
    flash_attention,
    merge_lse,
    merge_partials,
    scaled_dot_product_attention_grouped,
    scaled_dot_product_attention_simple,
)
from .basics import linear, silu, softmax
from .embedding import Embedding
from .layer_norm import RMSNorm
from .positional_encoding import RoPE

__all__ = [
    "Embedding",
    "Explanation",
    "RMSNorm",
    "RoPE",
    "SimpleMultiHeadAttention",
    "attention",
    "attention_reference",
    "basics",
    "causal_mask",
    "embedding",
    "explain",
    "flash_attention",
    "layer_norm",
    "linear",
    "merge_lse",
    "merge_partials",
    "mx",
    "positional_encoding",
    "scaled_dot_product_attention_grouped",
    "scaled_dot_product_attention_simple",
    "silu",
    "softmax",
]
