"""Which replica answers a request: the one that has the pages of its prefix, unless it is overloaded."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import ClassVar

# benches/LOG.md, T15: with 1.25 and 4, chance moves a quarter of the turns away from their pages.
FACTOR = 2.0
SPARE = 8
# Of the number of replicas: the requests that each should have, and seconds until one more is started.
QUEUED = 8
UPSCALE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class LoadBound:
    """Rendezvous hashing with bounded loads.

    Each prefix has an order of replicas of its own, in which a new or lost replica changes nothing but its
    own place. The first one with room answers: a prompt that everybody sends spreads as far as it must.

    A replica has room while it has fewer requests than `factor` times the mean, this request included.
    spare: and always while it has fewer than these, which it answers in a batch anyway.
    """

    factor: float = FACTOR
    spare: int = SPARE

    def order(self, prefix: bytes | None, loads: Mapping[str, int]) -> list[str]:
        """The replicas, the best one first. `loads`: the requests of each, which decide without a prefix."""
        if prefix is None:
            return sorted(loads, key=lambda name: (loads[name], random.random()))
        most = max(self.spare, math.ceil(self.factor * (sum(loads.values()) + 1) / max(len(loads), 1)))
        preferred = sorted(loads, key=lambda name: weight(prefix, name), reverse=True)
        with_room = [name for name in preferred if loads[name] < most]
        others = [name for name in preferred if loads[name] >= most]
        return with_room + sorted(others, key=lambda name: loads[name])


class Running:
    """`names()`: the replicas that run, as Ray has told the router of this process; none before.

    Ray has a copy of the router's module: what it shall tell others is in one that it imports.
    """

    names: ClassVar[Callable[[], list[str]]] = list


def weight(prefix: bytes, name: str) -> bytes:
    """How much a prefix prefers a replica, the same in every process."""
    return blake2b(name.encode(), key=prefix[:64], digest_size=8).digest()


def wanted_replicas(requests: float, queue: float) -> float:
    """As many as give each `queue` of these requests, running or waiting; fractions are rounded up."""
    return requests / queue
