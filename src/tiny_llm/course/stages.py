"""The operations of each week; the forward pass is the same for all."""

from dataclasses import replace

from ..models.cached_attention import attend_flash, attend_grouped, attend_paged
from ..models.cpu_block import run_on_cpu
from ..models.gpu_block import run_on_gpu
from ..models.ops import Ops
from ..models.weights import dense_weights, quantized_weights

WEEK1 = Ops(load_weights=dense_weights, attend=attend_grouped)
WEEK2 = replace(WEEK1, load_weights=quantized_weights)
WEEK2_FLASH = replace(WEEK2, attend=attend_flash, fused_blocks=(run_on_cpu, run_on_gpu))
WEEK3 = replace(WEEK2, attend=attend_paged)
