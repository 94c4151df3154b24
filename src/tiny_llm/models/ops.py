"""The operations in which the stages of the course differ; the rest of the forward pass is shared."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from ..cache.base import TinyKvCache
from ..ops.arguments import Mask
from .qkv import QKV, Offset
from .weights import Weights

LoadWeights = Callable[[Any, mx.Dtype], Weights]


@dataclass(frozen=True, slots=True)
class Ops:
    """The operations of a stage.

    load_weights: a layer of the checkpoint, type of the activations -> its weights, dense or quantized.
    attend: query, key and value of new tokens, cache, mask -> [B, L, H_q * D]; key and value are appended to
        the cache.
    fused_blocks: faster forms of a block, the first that applies runs. TransformerBlock, x [B, L, hidden],
        offset, cache, mask, last_only -> the block's output, or None where the form does not apply.
    """

    load_weights: LoadWeights
    attend: Callable[[QKV, TinyKvCache, Mask], mx.array]
    fused_blocks: tuple[Callable[[Any, mx.array, Offset, TinyKvCache, Mask, bool], mx.array | None], ...] = ()
