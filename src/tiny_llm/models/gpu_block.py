"""A block in MLX's fused operations, for a GPU; it equals its layers up to rounding.

In a decode step of a small model, starting a kernel takes longer than the kernel. So query, key and value are
one product, gate and up another, and RoPE turns the heads of queries and keys together.
"""

from dataclasses import dataclass, replace
from operator import is_
from typing import Any

import mlx.core as mx

from ..attention import flash_attention
from ..cache.base import TinyKvCache
from ..cache.full import TinyKvFullCache
from ..cache.stacked import StackedKvCache
from ..layer_norm import RMSNorm
from ..ops.arguments import Mask
from ..ops.fused import ON_GPU
from ..quantize import QuantizedWeights, multiply_on_gpu
from ..runtime.gpu import computes_on_gpu, is_cuda
from .cached_attention import attend_flash, attend_mlx
from .joined_weights import JoinedLayers
from .layers import MLP, MultiHeadAttention, TransformerBlock
from .ops import LoadWeights
from .qkv import Offset, row_offsets
from .sharded import SummedWeights
from .throttle import GROUP, current_throttle
from .weights import Weights, arrays_of, eval_weights

# From this number of new tokens on, packed weights are dequantized for a product on CUDA. MLX's product with
# packed weights is compiled at first use, for 40 s, and was three times slower on a prompt of 4096 tokens.
PROMPT_TOKENS = 8
LONG_PROMPT = 512  # tokens; shorter prompts of dense models hold little memory


@dataclass(eq=False, slots=True)
class GpuWeights:
    """The weights of a block in the form that `run_on_gpu` multiplies; dense matrices are transposed.

    head_weight: [H_q + H, 1, D], the weights of the norms of query and key heads; None without such norms.
    parts: the arrays of the block from which all this was made. A block that has others by now runs its
    layers; that one of these was written to is not noticed.
    """

    qkv: Weights
    qkv_bias: mx.array | None
    head_weight: mx.array | None
    gate_up: Weights
    out: Weights | SummedWeights
    down: Weights | SummedWeights
    parts: tuple[Any, ...]

    @property
    def dtype(self) -> mx.Dtype:
        """The type of the activations."""
        return (self.qkv.scales if isinstance(self.qkv, QuantizedWeights) else self.qkv).dtype


def gpu_weights(
    block: TransformerBlock, joined: JoinedLayers, load: LoadWeights, dtype: mx.Dtype
) -> GpuWeights:
    """The joined weights of a block for activations in `dtype`."""
    attention = block.self_attn
    bias = None if attention.biases is None else joined.qkv.bias.astype(dtype)
    head_weight = None
    if attention.head_norms:
        rows = (attention.num_heads, attention.num_kv_heads)
        weights = [norm.weight.astype(dtype) for norm in attention.head_norms]
        head_weight = mx.concatenate(
            [mx.broadcast_to(w, (n, 1, len(w))) for w, n in zip(weights, rows, strict=True)]
        )
    qkv, gate_up = (_transposed(load(layer, dtype)) for layer in joined)
    out, down = (
        replace(matrix, local=_transposed(matrix.local))
        if isinstance(matrix, SummedWeights)
        else _transposed(matrix)
        for matrix in (attention.wo, block.mlp.w_down)
    )
    made = GpuWeights(qkv, bias, head_weight, gate_up, out, down, _parts(block))
    eval_weights([qkv, bias, head_weight, gate_up, out, down])
    return made


def _transposed(weights: Weights) -> Weights:
    return weights if isinstance(weights, QuantizedWeights) else weights.T


def run_on_gpu(
    block: TransformerBlock, x: mx.array, offset: Offset, cache: TinyKvCache, mask: Mask, last_only: bool
) -> mx.array | None:
    """x [B, L, hidden] -> output of the block [B, L, hidden]; None where this form does not apply.

    With `last_only`, that of the last token of each row only: [B, 1, hidden].
    """
    weights: GpuWeights | None = block.gpu_weights
    if weights is None or not computes_on_gpu() or not _applies(block, x, cache, mask, weights):
        return None
    attention = block.self_attn
    starts = row_offsets(offset, rows=x.shape[0])
    if not attention.rope.has_positions(starts, x.shape[1]):
        return None  # the layers raise the error
    query, key, value = _project(block, weights, x, starts)
    keys, values, _, mask = cache.update_and_fetch(key, value, query.shape[2], "causal")
    if last_only:
        x, query = x[:, -1:], query[:, :, -1:]
        mask = mask[..., -1:, :] if isinstance(mask, mx.array) else mask
    ours = attention.ops.attend is attend_flash and mx.metal.is_available()
    attended = _attend(query, keys, values, attention.head_dim**-0.5, mask, ours)
    hidden = x + _multiply(_join_heads(attended), weights.out)
    norm = block.post_attention_layernorm
    gate, up = _gate_and_up(block, ON_GPU.rms_norm(hidden, norm.weight, norm.eps), weights.gate_up)
    result = hidden + _multiply(ON_GPU.silu_multiply(gate, up), weights.down)
    throttle = current_throttle()
    if throttle is not None and not isinstance(weights.gate_up, QuantizedWeights):
        throttle.add([result, cache.storage], GROUP)
    return result


def fills_memory(block: TransformerBlock, tokens: int) -> bool:
    """Whether blocks in flight would hold too much memory: their dense weights, or long activations."""
    weights: GpuWeights | None = block.gpu_weights
    if weights is None or not is_cuda() or not computes_on_gpu():
        return False
    return tokens >= (PROMPT_TOKENS if isinstance(weights.gate_up, QuantizedWeights) else LONG_PROMPT)


def _gate_and_up(block: TransformerBlock, x: mx.array, gate_up: Weights) -> tuple[mx.array, mx.array]:
    """Each [B, L, I]. As one product, or as two whose dense weights are in memory one after the other."""
    if isinstance(gate_up, QuantizedWeights) and _dequantizes(x):
        return _multiply(x, block.mlp.w_gate), _multiply(x, block.mlp.w_up)
    gate, up = mx.split(_multiply(x, gate_up), 2, axis=-1)
    return gate, up


def _project(
    block: TransformerBlock, weights: GpuWeights, x: mx.array, starts: int | list[int]
) -> tuple[mx.array, mx.array, mx.array]:
    """Query [B, H_q, L, D], key and value [B, H, L, D], after norms and RoPE."""
    attention, norm = block.self_attn, block.input_layernorm
    product = _multiply(ON_GPU.rms_norm(x, norm.weight, norm.eps), weights.qkv, weights.qkv_bias)
    heads = _heads_first(product, attention.head_dim)
    query_key, value = mx.split(heads, [attention.num_heads + attention.num_kv_heads], axis=1)
    if weights.head_weight is not None:
        query_key = mx.fast.rms_norm(query_key, None, attention.head_norms[0].eps) * weights.head_weight
    query_key = ON_GPU.rotate(query_key, attention.rope, starts)
    query, key = mx.split(query_key, [attention.num_heads], axis=1)
    return query, key, value


def _heads_first(x: mx.array, head_dim: int) -> mx.array:
    """[B, L, H * D] -> [B, H, L, D]. With one token there is nothing to transpose."""
    if x.shape[1] == 1:
        return x.reshape(x.shape[0], -1, 1, head_dim)
    return mx.unflatten(x, -1, (-1, head_dim)).swapaxes(1, 2)


def _join_heads(x: mx.array) -> mx.array:
    """[B, H, L, D] -> [B, L, H * D]."""
    if x.shape[2] == 1:
        return x.reshape(x.shape[0], 1, -1)
    return mx.flatten(x.swapaxes(1, 2), -2)


def _multiply(x: mx.array, weights: Weights | SummedWeights, bias: mx.array | None = None) -> mx.array:
    """x [B, L, I] -> [B, L, O]."""
    if isinstance(weights, SummedWeights):
        return weights.ranks.sum(_multiply(x, weights.local, bias))
    if not isinstance(weights, QuantizedWeights):
        return _multiply_dense(x, weights, bias)
    if not _dequantizes(x):
        product = multiply_on_gpu(x, weights)
        return product if bias is None else product + bias
    dense = weights.dequantize().T
    product = _multiply_dense(x, dense, bias)
    if throttle := current_throttle():
        throttle.add(product, dense.nbytes)
    return product


def _multiply_dense(x: mx.array, weights: mx.array, bias: mx.array | None) -> mx.array:
    if bias is None:
        return x @ weights
    if x.shape[-2] < PROMPT_TOKENS and is_cuda():
        return x @ weights + bias  # MLX for CUDA takes 11 us to start both, and 21 us for `addmm`
    return mx.addmm(bias, x, weights)


def _dequantizes(x: mx.array) -> bool:
    """Whether packed weights are dequantized for a product with x."""
    return x.shape[-2] >= PROMPT_TOKENS and is_cuda()


def _attend(
    query: mx.array, keys: mx.array, values: mx.array, scale: float, mask: Mask, ours: bool
) -> mx.array:
    """By our kernel, or by MLX's: on CUDA there is none of ours."""
    if isinstance(mask, str) and query.shape[2] == 1:
        mask = None  # the newest token sees all
    if ours:
        return flash_attention(query, keys, values, scale, mask)
    return mx.fast.scaled_dot_product_attention(query, keys, values, scale=scale, mask=mask)


def _applies(
    block: TransformerBlock, x: mx.array, cache: TinyKvCache, mask: Mask, weights: GpuWeights
) -> bool:
    attention = block.self_attn
    return (
        isinstance(mask, str)
        and mask == "causal"
        and x.ndim == 3
        and x.size > 0
        and x.shape[2] == block.hidden_size
        and x.dtype == weights.dtype
        and type(cache) in (TinyKvFullCache, StackedKvCache)
        and attention.ops.attend in (attend_flash, attend_mlx)
        and type(attention).forward is MultiHeadAttention.forward
        and type(attention).project is MultiHeadAttention.project
        and type(block.mlp).__call__ is MLP.__call__
        and _have_plain_norms(block)
        and all(map(is_, _parts(block), weights.parts))
    )


def _have_plain_norms(block: TransformerBlock) -> bool:
    """Whether no norm is overridden, and those of query and key heads can run as one."""
    head_norms = block.self_attn.head_norms
    norms = block.input_layernorm, block.post_attention_layernorm, *head_norms
    same_eps = not head_norms or head_norms[0].eps == head_norms[1].eps
    return same_eps and set(map(type, norms)) == {RMSNorm}


def _parts(block: TransformerBlock) -> tuple[Any, ...]:
    """The arrays of the matrices, biases and norms from which `GpuWeights` is made."""
    attention, mlp = block.self_attn, block.mlp
    parts: list[Any] = [*(attention.biases or ()), *(norm.weight for norm in attention.head_norms)]
    for weights in (attention.wq, attention.wk, attention.wv, attention.wo, mlp.w_gate, mlp.w_up, mlp.w_down):
        parts += arrays_of(weights)
    return tuple(parts)
