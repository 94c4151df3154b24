"""A block on a few new tokens as one native operation, bitwise equal to running its layers one by one.

Starting each operation of the layers, and MLX's bookkeeping for each weight, is much of the time of a
decode step.
"""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from ..cache.base import TinyKvCache
from ..layer_norm import RMSNorm
from ..ops.arguments import Mask
from ..positional_encoding import RotationTable
from ..quantize import QuantizedWeights
from ..runtime.extension import cpu_kernels, load_extension
from .cached_attention import attend_flash
from .layers import MLP, MultiHeadAttention, TransformerBlock
from .positions import Offset, row_offsets
from .reservation import is_full_cache, is_short, reserve


@dataclass(frozen=True, slots=True)
class NativeBlock:
    """The native operation of a block for one activation type, with the layers and settings it is made of."""

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


def run_natively(
    block: TransformerBlock, x: mx.array, offset: Offset, cache: TinyKvCache, mask: Mask
) -> mx.array | None:
    """x [B, L, hidden] -> output of the block [B, L, hidden]; None if no native operation applies."""
    if cpu_kernels(x.dtype) is None or x.ndim != 3 or x.size == 0 or not is_short(x.shape[1], mask):
        return None
    attention = block.self_attn
    if attention.ops.attend is not attend_flash:  # the operation computes FlashAttention
        return None
    tokens = (x.shape[0], attention.num_kv_heads, x.shape[1], attention.head_dim)
    reservation = reserve(cache, tokens, x.dtype)
    starts = row_offsets(offset, rows=x.shape[0])
    table = attention.rope.table(starts, x.shape[1])
    native = None if reservation is None else _native(block, x.dtype, table)
    if reservation is None or native is None:
        return None
    y: mx.array
    y, grown = native.operation(x, reservation.spaces, starts)
    reservation.commit(grown)
    return y


def ran_natively(block: TransformerBlock, cache: TinyKvCache) -> bool:
    """Whether the block has run as one operation, and would do so again with this cache."""
    return block.native is not None and is_full_cache(cache)


def _native(block: TransformerBlock, dtype: mx.Dtype, table: RotationTable) -> NativeBlock | None:
    """The native operation of a block, made again if a layer or a weight was replaced."""
    attention = block.self_attn
    arrays: list[mx.array] = []
    for weights in _matrices(block):
        if not isinstance(weights, QuantizedWeights):
            block.native = None
            return None
        arrays += (weights.weight, weights.scales, weights.biases)
    arrays += attention.biases or ()
    arrays += [norm.weight for norm in _norms(block)]
    arrays += (table.cos, table.sin)
    native: NativeBlock | None = block.native
    if native is None or not native.matches(block, arrays, dtype):
        native = block.native = _make(block, arrays, dtype)
    return native


def _make(block: TransformerBlock, arrays: list[mx.array], dtype: mx.Dtype) -> NativeBlock | None:
    """None if the operation does not compute these layers, or their arrays are being traced."""
    attention, mlp, *norms = _layers(block)
    if type(attention).forward is not MultiHeadAttention.forward:
        return None
    if type(attention).project is not MultiHeadAttention.project or type(mlp).__call__ is not MLP.__call__:
        return None
    if any(type(norm) is not RMSNorm for norm in norms):
        return None
    matrices = _matrices(block)
    of_type = [weights.scales for weights in matrices] + [weights.biases for weights in matrices]
    of_type += attention.biases or ()
    settings = _settings(block)
    (wq, wk, wv, wo, gate, up, down), *others = settings
    if not wq == wk == wv or gate != up or any(array.dtype != dtype for array in of_type):
        return None
    operation = load_extension().DecoderBlock.of(arrays, [wq, wo, gate, down], *others)
    return None if operation is None else NativeBlock(operation, dtype, _layers(block), settings)


def _layers(block: TransformerBlock) -> tuple[Any, ...]:
    return block.self_attn, block.mlp, *_norms(block)


def _settings(block: TransformerBlock) -> tuple[Any, ...]:
    """The arguments of the operation beside arrays: format of each matrix, biases, eps, head size, RoPE."""
    attention = block.self_attn
    formats = [(weights.group_size, weights.bits) for weights in _matrices(block)]
    eps = [norm.eps for norm in _norms(block)]
    return formats, attention.biases is not None, eps, attention.head_dim, attention.rope.traditional


def _norms(block: TransformerBlock) -> tuple[RMSNorm, ...]:
    return block.input_layernorm, block.post_attention_layernorm, *block.self_attn.head_norms


def _matrices(block: TransformerBlock) -> tuple[Any, ...]:
    attention, mlp = block.self_attn, block.mlp
    return attention.wq, attention.wk, attention.wv, attention.wo, mlp.w_gate, mlp.w_up, mlp.w_down
