"""A block on a few new tokens as one native operation.

It gives the bits of the operations that the layers are made of. To start each of those, and MLX's account of
every weight that goes into them, is much of the time of a decoding step.
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
from .few_tokens import few, is_full, open_requests
from .layers import MLP, MultiHeadAttention, TransformerBlock
from .positions import Offset, row_offsets


@dataclass(frozen=True, slots=True)
class NativeBlock:
    """The operation that stands for a block, for activations of one type, and what it stands for."""

    operation: Any
    dtype: mx.Dtype
    layers: tuple[object, ...]
    settings: tuple[object, ...]

    def stands_for(self, block: TransformerBlock, arrays: list[mx.array], dtype: mx.Dtype) -> bool:
        """Whether the block has these layers still, and they are what they were."""
        if self.dtype != dtype or self.layers != _layers(block) or self.settings != _settings(block):
            return False
        return bool(self.operation.holds(arrays))

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A deep copy of a block makes an operation of its own: the native one cannot be copied."""
        return type(None), ()


def run_natively(
    block: TransformerBlock, x: mx.array, offset: Offset, cache: TinyKvCache, mask: Mask
) -> mx.array | None:
    """[B, L, hidden] -> the same through a block; None where there is no such operation for these."""
    if cpu_kernels(x.dtype) is None or x.ndim != 3 or x.size == 0 or not few(x.shape[1], mask):
        return None
    attention = block.self_attn
    if attention.ops.attend is not attend_flash:  # which the operation stands for
        return None
    tokens = (x.shape[0], attention.num_kv_heads, x.shape[1], attention.head_dim)
    requests = open_requests(cache, tokens, x.dtype)
    starts = row_offsets(offset, rows=x.shape[0])
    table = attention.rope.table(starts, x.shape[1])
    native = None if requests is None else _native(block, x.dtype, table)
    if requests is None or native is None:
        return None
    y: mx.array
    y, grown = native.operation(x, requests.room, starts)
    requests.take(grown)
    return y


def ran_natively(block: TransformerBlock, cache: TinyKvCache) -> bool:
    """Whether tokens have gone through the block as one operation, as a few more for this cache would."""
    return block.native is not None and is_full(cache)


def _native(block: TransformerBlock, dtype: mx.Dtype, table: RotationTable) -> NativeBlock | None:
    """The native form of a block, made anew where a layer or a weight is another one than before."""
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
    if native is None or not native.stands_for(block, arrays, dtype):
        native = block.native = _make(block, arrays, dtype)
    return native


def _make(block: TransformerBlock, arrays: list[mx.array], dtype: mx.Dtype) -> NativeBlock | None:
    """None where the layers are not those that an operation stands for, or their arrays are being traced."""
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
    """What an operation is told beside arrays: the format of each matrix, and the rest in order."""
    attention = block.self_attn
    formats = [(weights.group_size, weights.bits) for weights in _matrices(block)]
    eps = [norm.eps for norm in _norms(block)]
    return formats, attention.biases is not None, eps, attention.head_dim, attention.rope.traditional


def _norms(block: TransformerBlock) -> tuple[RMSNorm, ...]:
    return block.input_layernorm, block.post_attention_layernorm, *block.self_attn.head_norms


def _matrices(block: TransformerBlock) -> tuple[Any, ...]:
    attention, mlp = block.self_attn, block.mlp
    return attention.wq, attention.wk, attention.wv, attention.wo, mlp.w_gate, mlp.w_up, mlp.w_down
