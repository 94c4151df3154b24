"""The operations of each week; the forward pass is the same for all."""

from dataclasses import replace

from ..errors import ArgumentError
from ..models.cached_attention import attend_flash, attend_grouped, attend_mlx, attend_paged
from ..models.cpu_block import run_on_cpu
from ..models.gpu_block import run_on_gpu
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
