"""What differs between the stages of a model: everything else is one forward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from ..cache.base import Mask
from ..kv_cache import TinyKvCache
from .positions import NewTokens, Offset
from .weights import Weights

if TYPE_CHECKING:
    from .layers import TransformerBlock

Read = Callable[[Any, mx.Dtype], Weights]


@dataclass(frozen=True, slots=True)
class Ops:
    """The slots that a stage fills.

    read: how the weights of a checkpoint's layer are held, for activations of a given type.
    attend: new tokens, cache, mask -> [B, L, H_q * D]; the cache holds the tokens afterwards.
    run: block, x [B, L, hidden], offset, cache, mask -> the same as the layers of the block one after the
    other, or None where it has nothing better for these.
    """

    read: Read
    attend: Callable[[NewTokens, TinyKvCache, Mask], mx.array]
    run: Callable[[TransformerBlock, mx.array, Offset, TinyKvCache, Mask], mx.array | None] | None = None
