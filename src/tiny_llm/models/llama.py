"""The Llama family, and others that have its layers: no biases, no norms on heads, a head size of its own."""

from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from ..ops.rope_scaling import RopeScaling
from ..positional_encoding import RoPE
from .layers import MLP, MultiHeadAttention, TransformerBlock
from .model import Transformer
from .ops import Ops


@dataclass(eq=False, repr=False)
class LlamaAttention(MultiHeadAttention):
    max_seq_len: int
    theta: float
    rope_scaling: RopeScaling | None
    ops: Ops

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rope = RoPE(self.head_dim, self.max_seq_len, self.theta, scaling=self.rope_scaling)


@dataclass(eq=False, repr=False)
class LlamaBlock(TransformerBlock):
    attention = LlamaAttention
    feed_forward = MLP

    bq: mx.array = field(init=False)
    bk: mx.array = field(init=False)
    bv: mx.array = field(init=False)
    q_norm: mx.array = field(init=False)
    k_norm: mx.array = field(init=False)
    ops: Ops = field(kw_only=True)


class LlamaModel(Transformer):
    block = LlamaBlock
    default_dtype = mx.bfloat16

    def block_arguments(self, layer: Any) -> dict[str, Any]:
        return self.common_arguments(layer) | {"head_dim": self.mlx_model.args.head_dim}
