"""Qwen2 of week 2: quantized weights, a cache of keys and values, and the switch to FlashAttention."""

from dataclasses import dataclass

from .course.stages import WEEK2, Week2Model, flash_ops
from .models.layers import MLP
from .models.qwen2 import Qwen2Attention, Qwen2Block, Qwen2Model
from .runtime.gpu import AttentionChoice


@dataclass(eq=False, repr=False)
class Qwen2MultiHeadAttention(Qwen2Attention):
    """Attention of the new tokens to all tokens in the cache."""

    use_flash_attention: AttentionChoice = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ops = flash_ops(self.use_flash_attention) if self.use_flash_attention else WEEK2


class Qwen2MLP(MLP):
    """The feed-forward layer on quantized weights."""


@dataclass(eq=False, repr=False)
class Qwen2TransformerBlock(Qwen2Block):
    """One layer of the model."""

    attention = Qwen2MultiHeadAttention
    feed_forward = Qwen2MLP
    use_flash_attention: AttentionChoice = False


class Qwen2ModelWeek2(Week2Model, Qwen2Model):
    """Computes each token once; `enable_flash_attn` chooses between FlashAttention and grouped attention."""

    block = Qwen2TransformerBlock
