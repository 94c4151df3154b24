"""Short steps, which run as one native operation, and the space that they need in the caches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

import mlx.core as mx

from ..cache.base import TinyKvCache
from ..cache.batching import BatchingKvCache
from ..cache.full import TinyKvFullCache
from ..ops.arguments import Mask

# New tokens of a request: a decode step, a draft to verify, or a short prompt. Up to this number, starting
# the operations one by one costs at least 5 % of the time.
SHORT_STEP = 32

# Of one request: keys and values [B, H, capacity, D], the number of tokens in them, and `kept` of the cache.
Space = tuple[mx.array, mx.array, int, bool]


def is_short(tokens: int, mask: Mask) -> bool:
    """Whether a step of `tokens` tokens per row, with this mask, can be one native operation."""
    return tokens <= SHORT_STEP and isinstance(mask, str) and mask == "causal"


@dataclass(slots=True)
class Reservation:
    """Space for the new tokens of a batch: `spaces` has one entry per slot, None for an idle slot."""

    caches: list[TinyKvFullCache]
    spaces: list[Space | None]
    added: int

    def commit(self, grown: Sequence[tuple[mx.array, mx.array]]) -> None:
        """Store the arrays that the operation returned, with the new tokens in them."""
        for cache, (keys, values) in zip(self.caches, grown, strict=True):
            cache.commit(keys, values, self.added, kept=True)


def reserve(cache: TinyKvCache, tokens: tuple[int, ...], dtype: mx.Dtype) -> Reservation | None:
    """Space for new tokens of shape `tokens` [B, H, L, D] in a cache; None if a request's is not dense."""
    slots: list[TinyKvCache | None] = [cache]
    if type(cache) is BatchingKvCache:
        active = cache.requests(tokens, "causal")
        slots = [active.get(slot) for slot in range(tokens[0])]
    of_each = (tokens[0] // len(slots), *tokens[1:])
    reservation = Reservation([], [], tokens[2])
    for slot in slots:
        if slot is None:
            reservation.spaces.append(None)
        elif is_full_cache(slot):
            reservation.caches.append(slot)
            keys, values, kept = slot.reserve(of_each, dtype)
            reservation.spaces.append((keys, values, slot.offset, kept))
        else:
            return None
    return reservation


def is_full_cache(cache: TinyKvCache) -> TypeGuard[TinyKvFullCache]:
    """Whether a cache stores its tokens in one dense array, to which a native operation can append."""
    # Subclasses, here and of BatchingKvCache above, may append tokens in another way.
    return type(cache) is TinyKvFullCache
