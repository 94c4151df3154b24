"""The Qwen2 family: biases on query, key and value, and heads that share out the hidden size."""

from typing import Any, ClassVar

import mlx.core as mx

from ..layer_norm import RMSNorm
from .layers import MLP, MultiHeadAttention, TransformerBlock
from .model import Transformer
from .weights import Weights


class Qwen2Attention(MultiHeadAttention):
    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        num_kv_heads: int,
        wq: Weights,
        wk: Weights,
        wv: Weights,
        wo: Weights,
        bq: mx.array,
        bk: mx.array,
        bv: mx.array,
        max_seq_len: int = 32768,
        theta: int = 1000000,
    ):
        if num_heads < 1 or hidden_size % num_heads != 0:
            raise ValueError(
                f"{type(self).__name__}: num_heads: got {num_heads}, expected a divisor of {hidden_size}"
            )
        head_dim = hidden_size // num_heads
        super().__init__(
            hidden_size, num_heads, num_kv_heads, head_dim, wq, wk, wv, wo, bq, bk, bv, max_seq_len, theta
        )


class Qwen2Block(TransformerBlock):
    """Made from `attention` and `feed_forward`, which the week of the course names."""

    attention: ClassVar[type[Qwen2Attention]]
    feed_forward: ClassVar[type[MLP]]

    def __init__(
        self,
        num_attention_heads: int,
        num_kv_heads: int,
        hidden_size: int,
        intermediate_size: int,
        rms_norm_eps: float,
        wq: Weights,
        wk: Weights,
        wv: Weights,
        wo: Weights,
        bq: mx.array,
        bk: mx.array,
        bv: mx.array,
        w_gate: Weights,
        w_up: Weights,
        w_down: Weights,
        w_input_layernorm: mx.array,
        w_post_attention_layernorm: mx.array,
        max_seq_len: int = 32768,
        theta: int = 1000000,
    ):
        heads = (hidden_size, num_attention_heads, num_kv_heads)
        super().__init__(
            self.attention(*heads, wq, wk, wv, wo, bq, bk, bv, max_seq_len, theta),
            self.feed_forward(hidden_size, intermediate_size, w_gate, w_up, w_down),
            RMSNorm(hidden_size, w_input_layernorm, rms_norm_eps),
            RMSNorm(hidden_size, w_post_attention_layernorm, rms_norm_eps),
        )


class Qwen2Model(Transformer):
    published_precision = mx.float16

    def block_arguments(self, layer: Any) -> dict[str, Any]:
        attention = layer.self_attn
        biases = {"bq": attention.q_proj.bias, "bk": attention.k_proj.bias, "bv": attention.v_proj.bias}
        return self.common_arguments(layer) | {
            name: bias.astype(self.precision) for name, bias in biases.items()
        }
