"""Packed prompts, causal, and the rows of `bench prefill` and `bench crossover`, in the sizes of MinivLLM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from benches.harness.types import SHORT_NAMES, Dtype

PrefillGroup = Literal["short", "medium", "long"]
PREFILL_GROUPS: dict[PrefillGroup, str] = {
    "short": "2 x 60 tokens, where the cost of a call matters, and 4 x 64, the limit of one tile",
    "medium": "2 x 1024 tokens",
    "long": "1 x 4096 tokens",
}
CROSSOVER_GROUPS = {
    "sweep": "two prompts of 16 to 1024 tokens: from which length on is a flash kernel faster?"
}

PREFILL: dict[PrefillGroup, tuple[tuple[int, int, int], ...]] = {  # prompts, tokens, samples
    "short": ((2, 60, 100), (4, 64, 100)),
    "medium": ((2, 1024, 30),),
    "long": ((1, 4096, 10),),
}
LENGTHS = (16, 32, 48, 64, 80, 96, 112, 128, 192, 256, 512, 1024)


class Packed(Protocol):
    """Prompts one after the other: query [tokens, heads, D], key and value with kv_heads."""

    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def D(self) -> int: ...
    @property
    def dtype(self) -> Dtype: ...
    @property
    def tokens(self) -> int: ...
    @property
    def starts(self) -> list[int]:
        """cu_seqlens: the first row of each prompt, and the number of rows."""
        ...


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts of equal length: query [count * length, heads, D], key and value with kv_heads."""

    group: str
    count: int
    length: int
    samples: int
    heads: int = 32
    kv_heads: int = 8
    D: int = 128
    dtype: Dtype = "float16"
    warmups: int = 5

    @property
    def name(self) -> str:
        sizes = f"{self.heads}/{self.kv_heads} D={self.D}"
        return f"{SHORT_NAMES[self.dtype]} {sizes}, {self.count} x {self.length} tokens"

    @property
    def tokens(self) -> int:
        return self.count * self.length

    @property
    def starts(self) -> list[int]:
        """cu_seqlens: the first row of each prompt, and the number of rows."""
        return [number * self.length for number in range(self.count + 1)]

    @property
    def flops(self) -> float:
        """Operations of the two products over the visible keys."""
        return 2.0 * self.count * self.heads * self.D * self.length * (self.length + 1)

    def record(self) -> dict[str, Any]:
        return asdict(self)


def prefill(group: PrefillGroup) -> Iterator[Prompts]:
    """The rows of one group in the order of measurement."""
    for count, length, samples in PREFILL[group]:
        yield Prompts(group, count, length, samples)


def crossover(group: str) -> Iterator[Prompts]:
    for length in LENGTHS:
        yield Prompts(group, 2, length, 50, warmups=10)


def is_quick(case: Prompts) -> bool:
    """Whether a row is part of `--quick`: no contestant takes more than some seconds for it."""
    return case.length <= 256
