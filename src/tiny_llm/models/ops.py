"""The operations in which the stages of the course differ; the rest of the forward pass is shared."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from ..cache.base import TinyKvCache
from ..ops.arguments import Mask
from .positions import NewTokens, Offset
from .weights import Weights

Read = Callable[[Any, mx.Dtype], Weights]


@dataclass(frozen=True, slots=True)
class Ops:
    """The operations of a stage.

    read: a layer of the checkpoint, type of the activations -> its weights in the form that the stage holds.
    attend: new tokens, cache, mask -> [B, L, H_q * D]; the new tokens are appended to the cache.
    run: TransformerBlock, x [B, L, hidden], offset, cache, mask -> [B, L, hidden], bitwise equal to running
        the layers of the block one by one; None where there is no single operation for these arguments.
    """

    read: Read
    attend: Callable[[NewTokens, TinyKvCache, Mask], mx.array]
    run: Callable[[Any, mx.array, Offset, TinyKvCache, Mask], mx.array | None] | None = None
