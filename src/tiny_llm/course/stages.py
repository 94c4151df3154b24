"""The operations of each week; the forward pass is the same for all."""

from dataclasses import replace

from ..models.cached_attention import attend_flash, attend_grouped, attend_paged
from ..models.native_block import run_natively
from ..models.ops import Ops
from ..models.weights import read_dense, read_packed

WEEK1 = Ops(read=read_dense, attend=attend_grouped)
WEEK2 = replace(WEEK1, read=read_packed)
WEEK2_FLASH = replace(WEEK2, attend=attend_flash, run=run_natively)
WEEK3 = replace(WEEK2, attend=attend_paged)
