"""Week 2: quantized weights, a cache per request and layer, and the switch to FlashAttention."""

from typing import Any

import mlx.core as mx

from ..cache.full import TinyKvFullCache
from ..models.model import Transformer
from ..runtime.gpu import AttentionChoice
from .stages import WEEK2


class Week2Model(Transformer):
    """Computes each token once; `enable_flash_attn` chooses between FlashAttention and grouped attention.

    `enable_flash_attn` may also be "mlx": attention by MLX's operation, on any device.
    The defaults are those of the course. `LLM` is faster: it uses FlashAttention, the fastest dtype of the
    machine, and `next_logits`, which computes the logits of the last token of a prompt only.
    """

    ops = WEEK2

    def __init__(
        self, mlx_model: Any, enable_flash_attn: AttentionChoice = False, *, dtype: mx.Dtype | None = None
    ):
        super().__init__(mlx_model, dtype, use_flash_attention=enable_flash_attn)

    def create_kv_cache(self) -> list[TinyKvFullCache]:
        """One empty cache per layer, for one request."""
        return [TinyKvFullCache() for _ in range(self.num_hidden_layers)]
