"""The Qwen3 family: a norm on each query and key head, no biases, and a head size of its own."""

from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from ..layer_norm import RMSNorm
from ..ops.rope_scaling import RopeScaling
from ..positional_encoding import RoPE
from .layers import MultiHeadAttention, TransformerBlock
from .model import Transformer


@dataclass(eq=False, repr=False)
class Qwen3Attention(MultiHeadAttention):
    """The weights q_norm and k_norm are [head_dim]."""

    q_norm: mx.array
    k_norm: mx.array
    max_seq_len: int = 32768
    theta: int = 1000000
    rms_norm_eps: float = 1e-5
    rope_scaling: RopeScaling | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rope = RoPE(self.head_dim, self.max_seq_len, self.theta, scaling=self.rope_scaling)
        self.query_norm = RMSNorm(self.head_dim, self.q_norm, self.rms_norm_eps)
        self.key_norm = RMSNorm(self.head_dim, self.k_norm, self.rms_norm_eps)

    @property
    def head_norms(self) -> tuple[RMSNorm, ...]:
        return self.query_norm, self.key_norm


@dataclass(eq=False, repr=False)
class Qwen3Block(TransformerBlock):
    bq: mx.array = field(init=False)
    bk: mx.array = field(init=False)
    bv: mx.array = field(init=False)


class Qwen3Model(Transformer):
    default_dtype = mx.bfloat16

    def block_arguments(self, layer: Any) -> dict[str, Any]:
        return self.common_arguments(layer) | {
            "head_dim": self.mlx_model.args.head_dim,
            "q_norm": layer.self_attn.q_norm.weight,
            "k_norm": layer.self_attn.k_norm.weight,
        }
