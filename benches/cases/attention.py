"""The rows of `bench attention`, and how much work each is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from benches.harness.types import DTYPES, ITEM_BYTES, SHORT_NAMES, Dtype

Group = Literal["f32", "bf16", "short", "decode", "window", "avx2", "memory"]

GROUPS: dict[Group, str] = {
    "f32": "float32 prefill of 1024 and 4096 tokens",
    "bf16": "bfloat16 prefill of 1024 and 4096 tokens",
    "short": "16 to 256 tokens, where the cost of a call matters",
    "decode": "one new token over 4096 to 131072 cached ones",
    "window": "a sliding window of 512 keys over 8192 tokens",
    "avx2": "float32 prefill with AVX2 forced",
    "memory": "memory beyond the inputs for 16384 tokens (not a timing)",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One attention problem: query [1, heads, L, D], key and value [1, kv_heads, S, D], scale 1/sqrt(D)."""

    group: Group
    dtype: Dtype
    heads: int
    kv_heads: int
    L: int
    S: int
    D: int
    causal: bool = False
    window: int | None = None

    @property
    def name(self) -> str:
        size = f"N={self.L}" if self.L == self.S else f"L={self.L} S={self.S}"
        window = f" window {self.window}" if self.window else ""
        kind = "" if self.L == 1 else " causal" if self.causal else " full"
        return f"{SHORT_NAMES[self.dtype]} {self.heads}/{self.kv_heads} {size} D={self.D}{kind}{window}"

    @property
    def window_sides(self) -> tuple[int, int] | None:
        """Number of keys before and after its own position that a query sees."""
        if self.window is None:
            return None
        return (self.window - 1, 0) if self.causal else (self.window // 2, (self.window - 1) // 2)

    @property
    def flops(self) -> float:
        """Operations of the two products over the visible keys. Causal attention counts as half of full."""
        pairs = float(self.L) * self.S
        if self.window is not None:
            pairs = float(sum(last - first + 1 for first, last in map(self.visible_keys, range(self.L))))
        elif self.causal and self.L > 1:
            pairs /= 2
        return 4.0 * self.heads * self.D * pairs

    @property
    def kv_bytes(self) -> int:
        """Bytes of all keys and values."""
        return 2 * self.kv_heads * self.S * self.D * ITEM_BYTES[self.dtype]

    @property
    def output_bytes(self) -> int:
        return self.heads * self.L * self.D * ITEM_BYTES[self.dtype]

    @property
    def lse_bytes(self) -> int:
        """Bytes of one float32 for every output row."""
        return self.heads * self.L * 4

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "kv_bytes": self.kv_bytes}

    def visible_keys(self, row: int) -> tuple[int, int]:
        """First and last key that a query sees. The last query is at the position of the last key."""
        position = row + self.S - self.L
        left, right = self.window_sides or (self.S, 0 if self.causal else self.S)
        return max(0, position - left), min(self.S - 1, position + right)


PREFILL_SHAPES = ((14, 2, 1024, 64), (8, 8, 1024, 128), (8, 8, 4096, 128), (14, 2, 4096, 64))
SHORT_LENGTHS = (16, 32, 64, 128, 256)
DECODE_LENGTHS = (4096, 32768, 131072)
DECODE_HEADS = ((14, 2, 64), (28, 4, 128))


def cases(group: Group) -> Iterator[Case]:
    """The rows of one group in the order of measurement."""
    match group:
        case "f32" | "bf16":
            dtype: Dtype = "float32" if group == "f32" else "bfloat16"
            for heads, kv_heads, N, D in PREFILL_SHAPES:
                for causal in (True, False):
                    yield Case(group, dtype, heads, kv_heads, N, N, D, causal)
        case "short":
            for dtype in DTYPES:
                for N in SHORT_LENGTHS:
                    for causal in (True, False):
                        yield Case(group, dtype, 14, 2, N, N, 64, causal)
        case "decode":
            for dtype in DTYPES:
                for heads, kv_heads, D in DECODE_HEADS:
                    for S in DECODE_LENGTHS:
                        yield Case(group, dtype, heads, kv_heads, 1, S, D)
        case "window":
            for dtype in DTYPES:
                for causal in (True, False):
                    yield Case(group, dtype, 8, 8, 8192, 8192, 128, causal, window=512)
        case "avx2":
            for heads, kv_heads, N, D in PREFILL_SHAPES:
                for causal in (True, False):
                    if N == 4096:
                        yield Case(group, "float32", heads, kv_heads, N, N, D, causal)
        case "memory":
            for dtype in DTYPES:
                for causal in (True, False):
                    yield Case(group, dtype, 14, 2, 16384, 16384, 64, causal)


def is_quick(case: Case) -> bool:
    """Whether a row is part of `--quick`: no contestant takes more than some seconds for it."""
    return case.L <= 1024 and case.S <= 32768
