"""The rows of `bench packed` that pack causal prompts of any lengths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from benches.harness.types import DTYPES, SHORT_NAMES, Dtype

EQUAL = (1024,) * 4
MIXED = (60, 113, 200, 340, 512, 777, 1100, 1600)
WIDE = (60, 300, 1100, 4096)
SAMPLES = 7
QUICK_TOKENS = 2048  # of the longest prompt


@dataclass(frozen=True, slots=True)
class Varlen:
    """Query [tokens, heads, D], key and value with kv_heads."""

    lengths: tuple[int, ...]
    dtype: Dtype
    heads: int = 14
    kv_heads: int = 2
    D: int = 64
    samples: int = SAMPLES
    group: str = "varlen"
    warmups: int = 2

    @property
    def name(self) -> str:
        first, last = min(self.lengths), max(self.lengths)
        lengths = f"{first} to {last}" if self.uneven else str(last)
        sizes = f"{self.heads}/{self.kv_heads} D={self.D}"
        return f"{SHORT_NAMES[self.dtype]} {sizes}, {len(self.lengths)} x {lengths} tokens"

    @property
    def uneven(self) -> bool:
        """Whether a batch of them has padding."""
        return min(self.lengths) < max(self.lengths)

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    @property
    def starts(self) -> list[int]:
        """cu_seqlens: the first row of each prompt, and the number of rows."""
        return list(accumulate(self.lengths, initial=0))

    @property
    def flops(self) -> float:
        """Operations of the two products over the visible keys."""
        return self._flops(self.lengths)

    @property
    def padded_flops(self) -> float:
        """The same of the rectangle."""
        return self._flops((max(self.lengths),) * len(self.lengths))

    def _flops(self, lengths: tuple[int, ...]) -> float:
        return 2.0 * self.heads * self.D * sum(n * (n + 1) for n in lengths)

    def record(self) -> dict[str, Any]:
        return asdict(self)


def cases() -> Iterator[Varlen]:
    """The rows in the order of measurement."""
    for lengths in (EQUAL, MIXED, WIDE):
        for dtype in DTYPES:
            yield Varlen(lengths, dtype)


def is_quick(case: Varlen) -> bool:
    """Whether a row is part of `--quick`: no contestant takes more than some seconds for it."""
    return max(case.lengths) <= QUICK_TOKENS
