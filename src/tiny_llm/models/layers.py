"""The layers of a decoder: attention, feed-forward, and the block that joins them.

The arguments of a layer are the fields of a dataclass; each family adds its own and drops those it lacks.
"""

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import mlx.core as mx

from ..cache.base import TinyKvCache
from ..checks.arrays import check_shape
from ..errors import ArgumentError
from ..layer_norm import RMSNorm
from ..ops.arguments import Mask
from ..ops.rope_scaling import RopeScaling
from ..positional_encoding import RoPE
from .ops import Ops
from .qkv import QKV, Offset, row_offsets
from .sharded import SummedWeights
from .weights import Weights, multiply, multiply_gated, multiply_heads


@dataclass(eq=False, repr=False)
class MultiHeadAttention:
    """Attention in which `num_heads` query heads share `num_kv_heads` heads of keys and values.

    wq [num_heads * head_dim, hidden_size], wk and wv [num_kv_heads * head_dim, hidden_size], wo [hidden_size,
    num_heads * head_dim], dense or quantized.
    """

    ops: Ops = field(init=False)
    rope: RoPE = field(init=False)
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    wq: Weights
    wk: Weights
    wv: Weights
    wo: Weights | SummedWeights

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.num_kv_heads < 1 or self.num_heads % self.num_kv_heads != 0:
            raise ArgumentError(name, "num_heads", self.num_heads, f"a multiple of {self.num_kv_heads}")
        inner, kv_inner = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        check_shape(name, "wq", self.wq.shape, (inner, self.hidden_size))
        check_shape(name, "wk", self.wk.shape, (kv_inner, self.hidden_size))
        check_shape(name, "wv", self.wv.shape, (kv_inner, self.hidden_size))
        check_shape(name, "wo", self.wo.shape, (self.hidden_size, inner))

    @property
    def biases(self) -> list[mx.array] | None:
        """The biases of query, key and value; None if the family has none."""
        return None

    @property
    def head_norms(self) -> tuple[RMSNorm, ...]:
        """The norms of each query head and of each key head; () if the family has none."""
        return ()

    def project(self, x: mx.array, norm: RMSNorm | None) -> tuple[mx.array, mx.array, mx.array]:
        """x [B, L, hidden], normalised by `norm` -> query [B, L, H_q, D], key and value [B, L, H, D]."""
        matrices = [self.wq, self.wk, self.wv]
        query, key, value = multiply_heads(x, matrices, self.biases, self.head_dim, norm)
        if self.head_norms:
            query_norm, key_norm = self.head_norms
            query, key = query_norm(query), key_norm(key)
        return query, key, value

    def forward(
        self,
        x: mx.array,
        offset: Offset,
        cache: TinyKvCache,
        mask: Mask,
        *,
        norm: RMSNorm | None = None,
        residual: mx.array | None = None,
        last_only: bool = False,
    ) -> mx.array:
        """x [B, L, hidden], normalised by `norm` -> attention output plus `residual` [B, L, hidden].

        Row b holds the tokens from position offset[b] on. With `last_only`, only the last token of each row
        is computed: [B, 1, hidden].
        """
        if x.ndim != 3:
            raise ArgumentError(type(self).__name__, "x", x.shape, f"(B, L, {self.hidden_size})")
        qkv = QKV(*self.project(x, norm), self.rope, row_offsets(offset, rows=x.shape[0]))
        attended = self.ops.attend(qkv, cache, mask)
        if last_only:
            attended = attended[:, -1:]
            residual = None if residual is None else residual[:, -1:]
        return multiply(attended, self.wo, residual=residual)

    def __call__(self, x: mx.array, offsets: Offset, cache: TinyKvCache, mask: Mask = None) -> mx.array:
        """[B, L, hidden] -> [B, L, hidden]; row b holds the tokens from position offsets[b] on."""
        return self.forward(x, offsets, cache, mask)


class MLP:
    """down(silu(gate x) * up x), with w_gate and w_up [hidden_dim, dim] and w_down [dim, hidden_dim]."""

    def __init__(
        self, dim: int, hidden_dim: int, w_gate: Weights, w_up: Weights, w_down: Weights | SummedWeights
    ):
        name = type(self).__name__
        check_shape(name, "w_gate", w_gate.shape, (hidden_dim, dim))
        check_shape(name, "w_up", w_up.shape, (hidden_dim, dim))
        check_shape(name, "w_down", w_down.shape, (dim, hidden_dim))
        self.dim = dim
        self.hidden_dim = hidden_dim
        self.w_gate, self.w_up, self.w_down = w_gate, w_up, w_down

    def __call__(
        self, x: mx.array, *, norm: RMSNorm | None = None, residual: mx.array | None = None
    ) -> mx.array:
        """x [..., dim], normalised by `norm` -> output plus `residual` [..., dim]."""
        return multiply(multiply_gated(x, self.w_gate, self.w_up, norm), self.w_down, residual=residual)


@dataclass(eq=False, repr=False)
class TransformerBlock:
    """Attention and feed-forward, each after a norm and with a residual connection.

    The fields are the arguments of its layers; those that `attention` does not take are ignored.
    """

    attention: ClassVar[type[MultiHeadAttention]]
    feed_forward: ClassVar[type[MLP]]

    num_attention_heads: int
    num_kv_heads: int
    hidden_size: int
    head_dim: int
    intermediate_size: int
    rms_norm_eps: float
    wq: Weights
    wk: Weights
    wv: Weights
    wo: Weights | SummedWeights
    bq: mx.array
    bk: mx.array
    bv: mx.array
    q_norm: mx.array
    k_norm: mx.array
    w_gate: Weights
    w_up: Weights
    w_down: Weights | SummedWeights
    w_input_layernorm: mx.array
    w_post_attention_layernorm: mx.array
    max_seq_len: int = 32768
    theta: int = 1000000
    rope_scaling: RopeScaling | None = field(default=None, kw_only=True)

    fused: Any = field(default=None, init=False)  # see cpu_block.py
    gpu_weights: Any = field(default=None, init=False)  # see gpu_block.py

    def __post_init__(self) -> None:
        given = {**vars(self), "num_heads": self.num_attention_heads}
        names = [argument.name for argument in fields(self.attention) if argument.init]
        self.self_attn = self.attention(**{name: given[name] for name in names})
        self.mlp = self.feed_forward(
            self.hidden_size, self.intermediate_size, self.w_gate, self.w_up, self.w_down
        )
        self.input_layernorm = RMSNorm(self.hidden_size, self.w_input_layernorm, self.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(
            self.hidden_size, self.w_post_attention_layernorm, self.rms_norm_eps
        )

    def forward(
        self, x: mx.array, offset: Offset, cache: TinyKvCache, mask: Mask, *, last_only: bool = False
    ) -> mx.array:
        """[B, L, hidden] -> [B, L, hidden]; row b holds the tokens from position offset[b] on.

        With `last_only`, all tokens are appended to the cache, and the rest is computed for the last token of
        each row only: [B, 1, hidden].
        """
        for fused_block in self.self_attn.ops.fused_blocks:
            y = fused_block(self, x, offset, cache, mask, last_only)
            if y is not None:
                return y
        norm = self.input_layernorm
        x = self.self_attn.forward(x, offset, cache, mask, norm=norm, residual=x, last_only=last_only)
        return self.mlp(x, norm=self.post_attention_layernorm, residual=x)

    def __call__(self, x: mx.array, offset: Offset, cache: TinyKvCache, mask: Mask = None) -> mx.array:
        """[B, L, hidden] -> [B, L, hidden]; row b holds the tokens from position offset[b] on."""
        return self.forward(x, offset, cache, mask)
