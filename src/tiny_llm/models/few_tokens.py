"""Few new tokens: what takes them in one operation, and the caches that such an operation writes to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

import mlx.core as mx

from ..cache.base import TinyKvCache
from ..cache.batching import BatchingKvCache
from ..cache.full import TinyKvFullCache
from ..ops.arguments import Mask

# New tokens of a request: a step, a draft to check or a short prompt. Up to here starting each operation
# alone costs 5 % of the time or more.
_FEW_TOKENS = 32

Room = tuple[mx.array, mx.array, int, bool]  # keys, values, how many tokens are there, and whether kept


def few(tokens: int, mask: Mask) -> bool:
    """Whether so many new tokens of a row are few, and see what such operations let them see."""
    return tokens <= _FEW_TOKENS and isinstance(mask, str) and mask == "causal"


@dataclass(slots=True)
class OpenRequests:
    """The caches of a batch, in order: room for the new tokens of each; None for a row without a cache."""

    caches: list[TinyKvFullCache]
    room: list[Room | None]
    added: int

    def take(self, grown: Sequence[tuple[mx.array, mx.array]]) -> None:
        """Keep the arrays with the new tokens."""
        for cache, (keys, values) in zip(self.caches, grown, strict=True):
            cache.take(keys, values, self.added, kept=True)


def open_requests(cache: TinyKvCache, tokens: tuple[int, ...], dtype: mx.Dtype) -> OpenRequests | None:
    """Room for new `tokens` [B, H, L, D] in the requests of a cache; None if some keep theirs otherwise."""
    slots: list[TinyKvCache | None] = [cache]
    if type(cache) is BatchingKvCache:
        active = cache.requests(tokens, "causal")
        slots = [active.get(slot) for slot in range(tokens[0])]
    of_each = (tokens[0] // len(slots), *tokens[1:])
    requests = OpenRequests([], [], tokens[2])
    for slot in slots:
        if slot is None:
            requests.room.append(None)
        elif is_full(slot):
            requests.caches.append(slot)
            keys, values, kept = slot.room_for(of_each, dtype)
            requests.room.append((keys, values, slot.offset, kept))
        else:
            return None
    return requests


def is_full(cache: TinyKvCache) -> TypeGuard[TinyKvFullCache]:
    """Whether a cache keeps its tokens in one array, where an operation can put them."""
    # A subclass, here as of a batch above, may take in tokens in a way of its own.
    return type(cache) is TinyKvFullCache
