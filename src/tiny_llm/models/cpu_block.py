"""A block as one native operation, bitwise equal to running its layers one by one.

Starting each operation of the layers, and MLX's bookkeeping for each weight, is much of the time of a
decode step.
"""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from ..cache.base import TinyKvCache
from ..cache.paged import TinyKvPagedCache
from ..cache.reservation import is_full_cache, reserve
from ..layer_norm import RMSNorm
from ..ops.arguments import Mask
from ..ops.fused import Table
from ..quantize import QuantizedWeights
from ..runtime.extension import cpu_kernels, load_extension
from .cached_attention import attend_flash, attend_paged, is_native
from .layers import MLP, MultiHeadAttention, TransformerBlock
from .qkv import Offset, row_offsets


@dataclass(frozen=True, slots=True)
class FusedBlock:
    """The fused operation of a block for one activation type, with the layers and settings it is made of."""

    operation: Any
    dtype: mx.Dtype
    layers: tuple[object, ...]
    settings: tuple[object, ...]

    def matches(self, block: TransformerBlock, arrays: list[mx.array], dtype: mx.Dtype) -> bool:
        """Whether the layers, settings and weights of the block are still those of the operation."""
        if self.dtype != dtype or self.layers != _layers(block) or self.settings != _settings(block):
            return False
        return bool(self.operation.holds(arrays))

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A native operation cannot be copied: a deep copy of a block makes a new one when it runs."""
        return type(None), ()


def run_on_cpu(
    block: TransformerBlock, x: mx.array, offset: Offset, cache: TinyKvCache, mask: Mask, last_only: bool
) -> mx.array | None:
    """x [B, L, hidden] -> output of the block [B, L, hidden]; None if no native operation applies.

    There is none for `last_only` with several tokens.
    """
    if last_only and x.shape[1] > 1:
        return None
    if cpu_kernels(x.dtype) is None or x.ndim != 3 or x.size == 0 or not is_native(mask):
        return None
    attention = block.self_attn
    if attention.ops.attend is not attend_flash:  # the operation computes FlashAttention
        return None
    tokens = (x.shape[0], attention.num_kv_heads, x.shape[1], attention.head_dim)
    reservation = reserve(cache, tokens, x.dtype)
    starts = row_offsets(offset, rows=x.shape[0])
    table = attention.rope.table(starts, x.shape[1])
    fused = None if reservation is None else fused_operation(block, x.dtype, table)
    if reservation is None or fused is None:
        return None
    y: mx.array
    y, grown = fused.operation(x, reservation.slots, starts)
    reservation.commit(grown)
    return y


def is_fused(block: TransformerBlock, cache: TinyKvCache) -> bool:
    """Whether the block has run as one operation, and would do so again with this cache."""
    on_pages = block.self_attn.ops.attend is attend_paged
    return block.fused is not None and (type(cache) is TinyKvPagedCache if on_pages else is_full_cache(cache))


def fused_operation(block: TransformerBlock, dtype: mx.Dtype, table: Table) -> FusedBlock | None:
    """The fused operation of a block, built again if a layer or a weight was replaced."""
    attention = block.self_attn
    arrays: list[mx.array] = []
    if not isinstance(block.mlp, MLP):  # it was replaced by a layer of another kind
        block.fused = None
        return None
    for weights in block_matrices(block):
        if not isinstance(weights, QuantizedWeights):
            block.fused = None
            return None
        arrays += (weights.weight, weights.scales, weights.biases)
    arrays += attention.biases or ()
    arrays += [norm.weight for norm in _norms(block)]
    arrays += (table.cos, table.sin)
    fused: FusedBlock | None = block.fused
    if fused is None or not fused.matches(block, arrays, dtype):
        fused = block.fused = _build_fused(block, arrays, dtype)
    return fused


def _build_fused(block: TransformerBlock, arrays: list[mx.array], dtype: mx.Dtype) -> FusedBlock | None:
    """None if the operation does not compute these layers, or their arrays are being traced."""
    attention, mlp, *norms = _layers(block)
    if type(attention).forward is not MultiHeadAttention.forward:
        return None
    if type(attention).project is not MultiHeadAttention.project or type(mlp).__call__ is not MLP.__call__:
        return None
    if any(type(norm) is not RMSNorm for norm in norms):
        return None
    matrices = block_matrices(block)
    typed_arrays = [weights.scales for weights in matrices] + [weights.biases for weights in matrices]
    typed_arrays += attention.biases or ()
    settings = _settings(block)
    (wq, wk, wv, wo, gate, up, down), *others = settings
    if not wq == wk == wv or gate != up or any(array.dtype != dtype for array in typed_arrays):
        return None
    operation = load_extension().DecoderBlock.of(arrays, [wq, wo, gate, down], *others)
    return None if operation is None else FusedBlock(operation, dtype, _layers(block), settings)


def _layers(block: TransformerBlock) -> tuple[Any, ...]:
    return block.self_attn, block.mlp, *_norms(block)


def _settings(block: TransformerBlock) -> tuple[Any, ...]:
    """The arguments of the operation beside arrays: format of each matrix, biases, eps, head size, RoPE."""
    attention = block.self_attn
    formats = [(weights.group_size, weights.bits) for weights in block_matrices(block)]
    eps = [norm.eps for norm in _norms(block)]
    return formats, attention.biases is not None, eps, attention.head_dim, attention.rope.traditional


def _norms(block: TransformerBlock) -> tuple[RMSNorm, ...]:
    return block.input_layernorm, block.post_attention_layernorm, *block.self_attn.head_norms


def block_matrices(block: TransformerBlock) -> tuple[Any, ...]:
    """The matrices of a block, dense or quantized."""
    attention, mlp = block.self_attn, block.mlp
    return attention.wq, attention.wk, attention.wv, attention.wo, mlp.w_gate, mlp.w_up, mlp.w_down
