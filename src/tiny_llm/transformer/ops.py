"""What differs between the stages of a model: everything else is one forward pass."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from ..kv_cache import TinyKvCache
from ..kv_cache.base import Mask
from .positions import NewTokens
from .weights import Weights

Read = Callable[[Any, mx.Dtype], Weights]


@dataclass(frozen=True, slots=True)
class Ops:
    """The slots that a stage fills.

    read: how the weights of a checkpoint's layer are held, for activations of a given type.
    attend: new tokens, cache, mask -> [B, L, H_q * D]; the cache holds the tokens afterwards.
    """

    read: Read
    attend: Callable[[NewTokens, TinyKvCache, Mask], mx.array]
