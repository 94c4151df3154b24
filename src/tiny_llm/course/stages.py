"""The weeks as stages: operations and caches of their models; the forward pass is the same for all."""

from dataclasses import replace
from typing import Any

import mlx.core as mx

from ..cache.base import NoCache
from ..cache.full import TinyKvFullCache
from ..cache.paged import TinyKvPagedCache
from ..cache.pool import TinyKvPagedPool
from ..errors import ArgumentError
from ..models.cached_attention import attend_flash, attend_grouped, attend_mlx, attend_paged
from ..models.cpu_block import run_on_cpu
from ..models.gpu_block import run_on_gpu
from ..models.model import Transformer
from ..models.ops import Ops
from ..models.paged_block import run_on_pages
from ..models.weights import dense_weights, quantized_weights
from ..runtime.gpu import AttentionChoice

WEEK1 = Ops(load_weights=dense_weights, attend=attend_grouped)
WEEK2 = replace(WEEK1, load_weights=quantized_weights)
WEEK2_FLASH = replace(WEEK2, attend=attend_flash, fused_blocks=(run_on_cpu, run_on_gpu))
WEEK2_MLX = replace(WEEK2_FLASH, attend=attend_mlx, fused_blocks=(run_on_gpu,))
WEEK3 = replace(WEEK2, attend=attend_paged, fused_blocks=(run_on_pages,))


def flash_ops(choice: AttentionChoice) -> Ops:
    """The operations of week 2 with FlashAttention, in our kernel or in MLX's."""
    if choice not in (True, "mlx"):
        raise ArgumentError("", "enable_flash_attn", repr(choice), "a bool or 'mlx'")
    return WEEK2_MLX if choice == "mlx" else WEEK2_FLASH


class Week1Model(Transformer):
    """Week 1: dense weights and no cache, so every call computes the whole text."""

    ops = WEEK1

    def __init__(self, mlx_model: Any, *, dtype: mx.Dtype | None = None):
        super().__init__(mlx_model, dtype)

    def __call__(self, inputs: mx.array) -> mx.array:  # type: ignore[override]
        """Token ids [B, L] -> logits [B, L, V]."""
        return super().__call__(inputs, 0, self._no_caches())

    def next_logits(self, inputs: mx.array) -> mx.array:  # type: ignore[override]
        """Token ids [B, L] -> logits [B, V] of the last tokens only."""
        return super().next_logits(inputs, 0, self._no_caches())

    def _no_caches(self) -> list[NoCache]:
        return [NoCache()] * self.num_hidden_layers


class Week2Model(Transformer):
    """Week 2: quantized weights, and a cache for each request and layer: each token is computed once.

    `enable_flash_attn` chooses between FlashAttention and grouped attention; "mlx" is attention by MLX's
    operation, on any device.
    The defaults are those of the course. `LLM` is faster: it uses FlashAttention, the fastest dtype of the
    machine, and `next_logits`, which computes the logits of the last token of a prompt only.
    """

    ops = WEEK2

    def __init__(
        self, mlx_model: Any, enable_flash_attn: AttentionChoice = False, *, dtype: mx.Dtype | None = None
    ):
        ops = flash_ops(enable_flash_attn) if enable_flash_attn else None
        super().__init__(mlx_model, dtype, ops, use_flash_attention=enable_flash_attn)

    def create_kv_cache(self) -> list[TinyKvFullCache]:
        """One empty cache per layer, for one request."""
        return [TinyKvFullCache() for _ in range(self.num_hidden_layers)]


class Week3Model(Transformer):
    """Week 3: paged attention; all requests and layers allocate their pages from `page_pool`."""

    ops = WEEK3

    def __init__(self, mlx_model: Any, page_size: int = 128, *, dtype: mx.Dtype | None = None):
        super().__init__(mlx_model, dtype)
        self.page_size = page_size
        self.page_pool = TinyKvPagedPool(page_size)

    def create_kv_cache(self) -> list[TinyKvPagedCache]:
        """One empty cache per layer, for one request."""
        return [TinyKvPagedCache(self.page_pool) for _ in range(self.num_hidden_layers)]
