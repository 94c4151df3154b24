"""The rows of `bench packed` that read pages: new tokens, and queries after a cached prefix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from benches.harness.types import ITEM_BYTES, SHORT_NAMES, Dtype

Layout = Literal["PHSE", "PSHE"]
LAYOUTS: tuple[Layout, Layout] = ("PHSE", "PSHE")
PAGES = (16, 64, 128)
HEADS = ((14, 2, 64), (28, 4, 128))
CONTEXTS = tuple(int(n) for n in np.linspace(100, 4000, 8))  # of the decoding sequences
QUERIES, PREFIX = 128, 2048
SAMPLES = 11


@dataclass(frozen=True, slots=True)
class Paged:
    """Packed query [batch * queries, heads, D]; pages with kv_heads in a random order.

    `contexts` are all tokens of each sequence, those of its queries included.
    """

    contexts: tuple[int, ...]
    queries: int  # of each sequence
    page: int
    layout: Layout
    heads: int
    kv_heads: int
    D: int
    dtype: Dtype = "bfloat16"
    samples: int = SAMPLES
    group: str = "pages"
    warmups: int = 5

    @property
    def name(self) -> str:
        sizes = f"{SHORT_NAMES[self.dtype]} {self.heads}/{self.kv_heads} D={self.D}"
        first, last, count = min(self.contexts), max(self.contexts), len(self.contexts)
        contexts = f"{first} to {last}" if first < last else str(last)
        work = f"{count} x {contexts} tokens"
        if self.queries > 1:
            work = f"{count} x {self.queries} after {last - self.queries} tokens"
        return f"{sizes} page {self.page} {self.layout}, {work}"

    @property
    def starts(self) -> list[int]:
        """cu_seqlens_q."""
        return [number * self.queries for number in range(len(self.contexts) + 1)]

    @property
    def causal(self) -> bool:
        return self.queries > 1

    @property
    def flops(self) -> float:
        """Operations of the two products over the visible keys."""
        hidden = self.queries * (self.queries - 1) / 2  # of each sequence
        pairs = sum(self.queries * context - hidden for context in self.contexts)
        return 4.0 * self.heads * self.D * pairs

    @property
    def kv_bytes(self) -> int:
        """Bytes of all keys and values."""
        return 2 * self.kv_heads * self.D * sum(self.contexts) * ITEM_BYTES[self.dtype]

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "kv_bytes": self.kv_bytes}


def cases() -> Iterator[Paged]:
    """The rows in the order of measurement."""
    for contexts, queries in ((CONTEXTS, 1), ((PREFIX + QUERIES,), QUERIES)):
        for heads, kv_heads, D in HEADS:
            for page in PAGES:
                for layout in LAYOUTS:
                    yield Paged(contexts, queries, page, layout, heads, kv_heads, D)
