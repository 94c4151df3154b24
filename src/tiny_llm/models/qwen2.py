"""The Qwen2 family: biases on query, key and value; the head size is hidden_size / num_heads."""

from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from ..errors import ArgumentError
from ..ops.rope_scaling import RopeScaling
from ..positional_encoding import RoPE
from .layers import MultiHeadAttention, TransformerBlock
from .model import Transformer


@dataclass(eq=False, repr=False)
class Qwen2Attention(MultiHeadAttention):
    head_dim: int = field(default=0, kw_only=True)  # hidden_size / num_heads, but of a part of the heads
    bq: mx.array
    bk: mx.array
    bv: mx.array
    max_seq_len: int = 32768
    theta: int = 1000000
    rope_scaling: RopeScaling | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not self.head_dim:
            if self.num_heads < 1 or self.hidden_size % self.num_heads != 0:
                raise ArgumentError(
                    type(self).__name__, "num_heads", self.num_heads, f"a divisor of {self.hidden_size}"
                )
            self.head_dim = self.hidden_size // self.num_heads
        super().__post_init__()
        self.rope = RoPE(self.head_dim, self.max_seq_len, self.theta, scaling=self.rope_scaling)

    @property
    def biases(self) -> list[mx.array]:
        return [self.bq, self.bk, self.bv]


@dataclass(eq=False, repr=False)
class Qwen2Block(TransformerBlock):
    head_dim: int = field(default=0, kw_only=True)
    q_norm: mx.array = field(init=False)
    k_norm: mx.array = field(init=False)


class Qwen2Model(Transformer):
    default_dtype = mx.float16

    def block_arguments(self, layer: Any) -> dict[str, Any]:
        attention = layer.self_attn
        biases = {"bq": attention.q_proj.bias, "bk": attention.k_proj.bias, "bv": attention.v_proj.bias}
        arguments = self.common_arguments(layer)
        if self.ranks is not None:
            arguments["head_dim"] = self.mlx_model.args.head_dim
        return arguments | {name: bias.astype(self.precision) for name, bias in biases.items()}
