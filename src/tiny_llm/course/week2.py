"""Week 2: packed weights, one cache per request and layer, and the switch to FlashAttention."""

from typing import Any

import mlx.core as mx

from ..cache.full import TinyKvFullCache
from ..models.model import Transformer
from .stages import WEEK2


class Week2Model(Transformer):
    """Calculates each token once; `enable_flash_attn` chooses how it then attends to the others.

    The defaults are the course's, not the fastest: `LLM` has FlashAttention and the type that the machine
    multiplies in, and asks for the logits of a prompt's last token only (`next_logits`).
    """

    ops = WEEK2

    def __init__(self, mlx_model: Any, enable_flash_attn: bool = False, *, dtype: mx.Dtype | None = None):
        super().__init__(mlx_model, dtype, use_flash_attention=enable_flash_attn)

    def create_kv_cache(self) -> list[TinyKvFullCache]:
        """One empty cache per layer, for one request."""
        return [TinyKvFullCache() for _ in range(self.num_hidden_layers)]
