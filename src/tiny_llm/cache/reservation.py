"""Space in caches for new tokens that a native operation appends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

import mlx.core as mx

from .base import TinyKvCache
from .batching import BatchingKvCache
from .full import TinyKvFullCache

# Of one request: keys and values [B, H, capacity, D], the number of tokens in them, append_in_place.
CacheSlot = tuple[mx.array, mx.array, int, bool]


@dataclass(slots=True)
class Reservation:
    """Space for the new tokens of a batch; an idle slot is None."""

    caches: list[TinyKvFullCache]
    slots: list[CacheSlot | None]
    num_new_tokens: int

    def commit(self, grown: Sequence[tuple[mx.array, mx.array]]) -> None:
        """Store the arrays that the operation returned, with the new tokens in them."""
        for cache, (keys, values) in zip(self.caches, grown, strict=True):
            cache.commit(keys, values, self.num_new_tokens, append_in_place=True)


def reserve(cache: TinyKvCache, tokens: tuple[int, ...], dtype: mx.Dtype) -> Reservation | None:
    """Space for new tokens of shape `tokens` [B, H, L, D] in a cache; None if a cache is not dense."""
    caches: list[TinyKvCache | None] = [cache]
    if type(cache) is BatchingKvCache:
        active = cache.active_caches(tokens, "causal")
        caches = [active.get(slot) for slot in range(tokens[0])]
    per_request_shape = (tokens[0] // len(caches), *tokens[1:])
    reservation = Reservation([], [], tokens[2])
    for request in caches:
        if request is None:
            reservation.slots.append(None)
        elif is_full_cache(request):
            reservation.caches.append(request)
            keys, values, append_in_place = request.reserve(per_request_shape, dtype)
            reservation.slots.append((keys, values, request.offset, append_in_place))
        else:
            return None
    return reservation


def is_full_cache(cache: TinyKvCache) -> TypeGuard[TinyKvFullCache]:
    """Whether a cache stores its tokens in one dense array, to which a native operation can append."""
    # Subclasses, here and of BatchingKvCache above, may append tokens in another way.
    return type(cache) is TinyKvFullCache
