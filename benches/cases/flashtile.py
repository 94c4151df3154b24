"""The rows of `bench flashtile`: layers of 12 heads on x [4, N, 768], in the sizes of FlashTile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from benches.harness.types import SHORT_NAMES, Dtype

Group = Literal["module", "attention"]
GROUPS: dict[Group, str] = {
    "module": "layers with both projections, 256 to 8192 tokens",
    "attention": "attention alone in the same sizes",
}
LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
DTYPES: tuple[Dtype, Dtype] = ("float32", "float16")


@dataclass(frozen=True, slots=True)
class Case:
    """x [batch, length, embed_dim], or query, key and value [batch, heads, length, embed_dim / heads]."""

    group: Group
    dtype: Dtype
    length: int
    causal: bool
    batch: int = 4
    embed_dim: int = 768
    heads: int = 12
    kv_heads: int = 3  # of the layer with grouped queries

    @property
    def head_dim(self) -> int:
        return self.embed_dim // self.heads

    @property
    def name(self) -> str:
        kind = "causal" if self.causal else "full"
        sizes = f"{self.batch} x {self.length} tokens, {self.heads} heads D={self.head_dim}"
        return f"{SHORT_NAMES[self.dtype]} {self.group} {sizes} {kind}"

    @property
    def flops(self) -> float:
        """Operations of the products over the visible keys, and of the projections of a module."""
        pairs = self.length * (self.length + 1) / 2 if self.causal else float(self.length**2)
        attention = 4.0 * self.batch * self.embed_dim * pairs
        projections = 8.0 * self.batch * self.length * self.embed_dim**2
        return attention + projections * (self.group == "module")

    def record(self) -> dict[str, Any]:
        return asdict(self)


def cases(group: Group) -> Iterator[Case]:
    """The rows of one group in the order of measurement."""
    for dtype in DTYPES:
        for causal in (True, False):
            for length in LENGTHS:
                yield Case(group, dtype, length, causal)


def is_quick(case: Case) -> bool:
    """Whether a row is part of `--quick`: no contestant takes more than some seconds for it."""
    return case.length <= 512
