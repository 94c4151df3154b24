"""The layers of a decoder: attention, feed-forward, and the block that joins them."""

import mlx.core as mx

from ..basics import silu
from ..kv_cache import TinyKvCache
from ..layer_norm import RMSNorm
from ..layers.dense import check_shape
from ..positional_encoding import RoPE
from .ops import Mask, Ops
from .positions import Offset, row_positions
from .weights import Weights, multiply


class MultiHeadAttention:
    """Attention in which `num_heads` query heads share `num_kv_heads` heads of keys and values.

    wq [num_heads * head_dim, hidden_size], wk and wv [num_kv_heads * head_dim, hidden_size], wo [hidden_size,
    num_heads * head_dim], dense or packed. Biases and the norms of query and key heads are there or not.
    """

    ops: Ops
    q_norm: RMSNorm | None = None
    k_norm: RMSNorm | None = None

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        wq: Weights,
        wk: Weights,
        wv: Weights,
        wo: Weights,
        bq: mx.array | None,
        bk: mx.array | None,
        bv: mx.array | None,
        max_seq_len: int,
        theta: int,
    ):
        name = type(self).__name__
        if num_kv_heads < 1 or num_heads % num_kv_heads != 0:
            raise ValueError(f"{name}: num_heads: got {num_heads}, expected a multiple of {num_kv_heads}")
        inner, kv_inner = num_heads * head_dim, num_kv_heads * head_dim
        check_shape(name, "wq", wq.shape, (inner, hidden_size))
        check_shape(name, "wk", wk.shape, (kv_inner, hidden_size))
        check_shape(name, "wv", wv.shape, (kv_inner, hidden_size))
        check_shape(name, "wo", wo.shape, (hidden_size, inner))
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.wq, self.wk, self.wv, self.wo = wq, wk, wv, wo
        self.bq, self.bk, self.bv = bq, bk, bv
        self.rope = RoPE(head_dim, max_seq_len, theta)

    def forward(self, x: mx.array, offset: Offset, cache: TinyKvCache, mask: Mask) -> mx.array:
        """[B, L, hidden] -> the same; row b holds the tokens from position offset[b] on."""
        if x.ndim != 3:
            raise ValueError(f"{type(self).__name__}: x: got {x.shape}, expected (B, L, {self.hidden_size})")
        query = _split(multiply(x, self.wq, self.bq), self.num_heads)
        key = _split(multiply(x, self.wk, self.bk), self.num_kv_heads)
        value = _split(multiply(x, self.wv, self.bv), self.num_kv_heads)
        if self.q_norm is not None:
            query = self.q_norm(query)
        if self.k_norm is not None:
            key = self.k_norm(key)
        positions = row_positions(offset, *x.shape[:2])
        query, key = self.rope(query, positions), self.rope(key, positions)
        query, key, value = (heads.swapaxes(1, 2) for heads in (query, key, value))
        attended = self.ops.attend(query, key, value, cache, mask)
        return multiply(mx.flatten(attended.swapaxes(1, 2), -2, -1), self.wo)


class MLP:
    """down(silu(gate x) * up x), with w_gate and w_up [hidden_dim, dim] and w_down [dim, hidden_dim]."""

    def __init__(self, dim: int, hidden_dim: int, w_gate: Weights, w_up: Weights, w_down: Weights):
        name = type(self).__name__
        check_shape(name, "w_gate", w_gate.shape, (hidden_dim, dim))
        check_shape(name, "w_up", w_up.shape, (hidden_dim, dim))
        check_shape(name, "w_down", w_down.shape, (dim, hidden_dim))
        self.dim = dim
        self.hidden_dim = hidden_dim
        self.w_gate, self.w_up, self.w_down = w_gate, w_up, w_down

    def __call__(self, x: mx.array) -> mx.array:
        """[..., dim] -> the same."""
        return multiply(silu(multiply(x, self.w_gate)) * multiply(x, self.w_up), self.w_down)


class TransformerBlock:
    """Attention and feed-forward, each behind a norm and beside a connection that adds its input."""

    def __init__(
        self,
        self_attn: MultiHeadAttention,
        mlp: MLP,
        input_layernorm: RMSNorm,
        post_attention_layernorm: RMSNorm,
    ):
        self.self_attn = self_attn
        self.mlp = mlp
        self.input_layernorm = input_layernorm
        self.post_attention_layernorm = post_attention_layernorm

    def forward(self, x: mx.array, offset: Offset, cache: TinyKvCache, mask: Mask) -> mx.array:
        """[B, L, hidden] -> the same."""
        x = x + self.self_attn.forward(self.input_layernorm(x), offset, cache, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


def _split(x: mx.array, heads: int) -> mx.array:
    """[B, L, heads * D] -> [B, L, heads, D]."""
    return mx.unflatten(x, -1, (heads, -1))
