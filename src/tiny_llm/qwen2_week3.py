"""Qwen2 of week 3: paged attention, with one pool of pages for all layers."""

from .course.stages import WEEK3, Week3Model
from .models.layers import MLP
from .models.qwen2 import Qwen2Attention, Qwen2Block, Qwen2Model


class Qwen2MultiHeadAttention(Qwen2Attention):
    """Attention of the new tokens to all tokens in the pages of the cache."""

    ops = WEEK3


class Qwen2MLP(MLP):
    """The feed-forward layer on quantized weights."""


class Qwen2TransformerBlock(Qwen2Block):
    """One layer of the model."""

    attention = Qwen2MultiHeadAttention
    feed_forward = Qwen2MLP


class Qwen2ModelWeek3(Week3Model, Qwen2Model):
    """All requests and layers allocate their pages from `page_pool`."""

    block = Qwen2TransformerBlock
