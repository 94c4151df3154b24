"""Qwen3 of every week: the stages of Qwen2, with the layers of its family."""

from dataclasses import dataclass, field

import mlx.core as mx

from .checks.arrays import dtype_name, wrong_dtype
from .course.stages import WEEK2, Week1Model, Week2Model, Week3Model, flash_ops
from .errors import ArgumentError
from .models import qwen3
from .models.layers import MLP
from .models.ops import Ops
from .quantize import QuantizedWeights
from .runtime.gpu import AttentionChoice


def assert_dtype(weights: mx.array, dtype: mx.Dtype) -> mx.array:
    """Return `weights`, which must be of that type."""
    if weights.dtype != dtype:
        raise wrong_dtype("assert_dtype", "weights", weights.dtype, dtype_name(dtype))
    return weights


def assert_quantized_weights_dtype(weights: QuantizedWeights, dtype: mx.Dtype) -> QuantizedWeights:
    """Return `weights`, whose scales and biases must be of that type."""
    found = {weights.scales.dtype, weights.biases.dtype}
    if found != {dtype}:
        raise ArgumentError(
            "assert_quantized_weights_dtype",
            "weights",
            f"scales {dtype_name(weights.scales.dtype)} and biases {dtype_name(weights.biases.dtype)}",
            dtype_name(dtype),
        )
    return weights


@dataclass(eq=False, repr=False)
class Qwen3MultiHeadAttention(qwen3.Qwen3Attention):
    """Attention of the new tokens to all tokens in the cache."""

    use_flash_attention: AttentionChoice = False
    ops: Ops = field(default=WEEK2, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.use_flash_attention:
            self.ops = flash_ops(self.use_flash_attention)


class Qwen3MLP(MLP):
    """The feed-forward layer."""


@dataclass(eq=False, repr=False)
class Qwen3TransformerBlock(qwen3.Qwen3Block):
    """One layer of the model."""

    attention = Qwen3MultiHeadAttention
    feed_forward = Qwen3MLP
    use_flash_attention: AttentionChoice = False
    ops: Ops = field(default=WEEK2, kw_only=True)


class _Qwen3(qwen3.Qwen3Model):
    """The layers of all weeks, which get the operations of the week as `ops`."""

    block = Qwen3TransformerBlock


class Qwen3ModelWeek1(Week1Model, _Qwen3):
    """Week 1: dense weights; computes the whole sequence in each call."""


class Qwen3Model(Week2Model, _Qwen3):
    """Week 2: computes each token once; `enable_flash_attn` chooses FlashAttention or grouped attention."""


class Qwen3ModelWeek3(Week3Model, _Qwen3):
    """Week 3: all requests and layers allocate their pages from `page_pool`."""
