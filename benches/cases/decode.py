"""The rows of `bench decode`: one new token a sequence over pages, in the sizes of MinivLLM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from benches.harness.types import ITEM_BYTES, SHORT_NAMES, Dtype

Group = Literal["a", "b"]
GROUPS: dict[Group, str] = {
    "a": "32 query heads, 8 of keys, head size 128, pages of 16 tokens",
    "b": "16 query heads, 8 of keys, head size 128, pages of 256 tokens",
}
HEADS: dict[Group, int] = {"a": 32, "b": 16}
PAGE: dict[Group, int] = {"a": 16, "b": 256}
SIZES: dict[Group, tuple[tuple[int, int, int], ...]] = {  # sequences, tokens, samples
    "a": ((2, 60, 100), (1, 512, 100), (16, 256, 50), (4, 2048, 20)),
    "b": tuple((batch, length, 20) for batch in (1, 8, 32) for length in (128, 512, 2048)),
}


@dataclass(frozen=True, slots=True)
class Case:
    """Query [batch, heads, D]; pages [P, page, kv_heads, D] in a random order.

    Every sequence has `length` tokens; `ragged` ones have from a quarter of it to all.
    """

    group: Group
    batch: int
    length: int
    samples: int
    heads: int
    page: int
    ragged: bool
    kv_heads: int = 8
    D: int = 128
    dtype: Dtype = "float16"
    warmups: int = 10

    @property
    def name(self) -> str:
        lengths = f"{min(self.lengths)} to {self.length}" if self.ragged else str(self.length)
        sizes = f"{self.heads}/{self.kv_heads} D={self.D}"
        return f"{SHORT_NAMES[self.dtype]} {sizes} page {self.page}, {self.batch} x {lengths} tokens"

    @property
    def lengths(self) -> list[int]:
        shortest = max(1, self.length // 4) if self.ragged else self.length
        return [int(n) for n in np.linspace(self.length, shortest, self.batch)]

    @property
    def flops(self) -> float:
        return 4.0 * self.heads * self.D * sum(self.lengths)

    @property
    def kv_bytes(self) -> int:
        """Bytes of all keys and values."""
        return 2 * self.kv_heads * self.D * sum(self.lengths) * ITEM_BYTES[self.dtype]

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "kv_bytes": self.kv_bytes}


def cases(group: Group) -> Iterator[Case]:
    """The rows of one group in the order of measurement; a single sequence cannot be ragged."""
    for batch, length, samples in SIZES[group]:
        for ragged in (False, True)[: 1 + (batch > 1)]:
            yield Case(group, batch, length, samples, HEADS[group], PAGE[group], ragged)


def is_quick(case: Case) -> bool:
    """Whether a row is part of `--quick`: no contestant takes more than some seconds for it."""
    return case.batch * case.length <= 4096
