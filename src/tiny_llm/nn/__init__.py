"""Attention layers as `mlx.nn` modules: x [B, N, E] -> (output [B, N, E], weights or None)."""

from ..runtime.installation import check_installation
from .base import BaseAttention
from .factory import get_attention
from .flash_v1 import FlashAttentionV1
from .flash_v2 import FlashAttentionV2
from .fused import FusedFlashAttention
from .grouped_query import GroupedQueryAttention
from .masked import MaskedAttention
from .masks import create_causal_mask, create_padding_mask, visible_keys
from .multi_query import MultiQueryAttention
from .naive import NaiveAttention
from .paged import Attention, DecodeMetadata, PrefillMetadata
from .sliding_window import SlidingWindowAttention
from .tiled import TiledAttention
from .validation import ValidationError, validate_attention

__all__ = [
    "Attention",
    "BaseAttention",
    "DecodeMetadata",
    "FlashAttentionV1",
    "FlashAttentionV2",
    "FusedFlashAttention",
    "GroupedQueryAttention",
    "MaskedAttention",
    "MultiQueryAttention",
    "NaiveAttention",
    "PrefillMetadata",
    "SlidingWindowAttention",
    "TiledAttention",
    "ValidationError",
    "check_installation",
    "create_causal_mask",
    "create_padding_mask",
    "get_attention",
    "validate_attention",
    "visible_keys",
]
