"""The rows of `bench schedules`: a few shapes of attention, each by every schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import mlx.core as mx

from benches.harness.types import ITEM_BYTES, SHORT_NAMES, Dtype
from tiny_llm.attention import attention_reference, flash_attention
from tiny_llm.ops.explanation import Explanation

FLOAT_BYTES = 4  # of scores, weights, m, l and the sums, whatever the dtype
# What `explain` calls dense, v1, v2 and split. V2 splits the keys if there are too few rows for all threads,
# so a shape has either V2 or split-K.
NAMES = {"dense": "naive", "v1": "V1", "v2": "V2", "split": "split-K"}
SCHEDULES: tuple[Callable[..., mx.array], ...] = (
    attention_reference,
    partial(flash_attention, schedule="v1"),
    flash_attention,
)


@dataclass(frozen=True, slots=True)
class Case:
    """Causal attention: query [1, heads, L, D], key and value [1, kv_heads, S, D]."""

    what: str
    L: int
    S: int
    window: int | None = None
    dtype: Dtype = "float32"
    heads: int = 8
    kv_heads: int = 2
    D: int = 64

    @property
    def name(self) -> str:
        window = f", window {self.window}" if self.window else ""
        return f"{self.what}: {SHORT_NAMES[self.dtype]} L={self.L} S={self.S}{window}"

    def inputs(self) -> tuple[mx.array, mx.array, mx.array]:
        """Drawn from N(0, 1) with a fixed seed."""
        shapes = ((1, heads, rows, self.D) for heads, rows in self._sizes())
        keys = mx.random.split(mx.random.key(0), 3)
        dtype = getattr(mx, self.dtype)
        query, key, value = (
            mx.random.normal(shape, key=each).astype(dtype) for shape, each in zip(shapes, keys, strict=True)
        )
        mx.eval(query, key, value)
        return query, key, value

    def options(self) -> dict[str, Any]:
        return {"causal": True, "window": self.window}

    def kv_bytes(self, plan: Explanation) -> int:
        """Bytes of keys and values that a schedule reads if no cache keeps a tile for the next rows.

        With the loop over keys outside, as in V1, and in one large product, once; else once for each visited
        tile, of which those at the end of the keys count as whole ones.
        """
        row = 2 * self.D * ITEM_BYTES[self.dtype]  # a key and its value
        once = plan.schedule in ("dense", "v1")
        return row * (self.kv_heads * self.S if once else plan.tiles_visited * plan.tile[1])

    def intermediate_bytes(self, plan: Explanation) -> int:
        """Bytes of scores, or of states of the online softmax, that pass through memory.

        naive: scores written and read, weights written and read. V1: m, l and sums of the rows of each
        visited tile read and written. split-K: partial results written, and read by the merge. V2: none.
        """
        match plan.schedule:
            case "dense":
                return 4 * self.heads * self.L * self.S * FLOAT_BYTES
            case "v1":
                rows = min(plan.tile[0], self.heads // self.kv_heads * self.L)
                return 2 * plan.tiles_visited * rows * (self.D + 2) * FLOAT_BYTES
            case "split":
                return 2 * plan.workspace_bytes
        return 0

    def record(self) -> dict[str, Any]:
        return asdict(self)

    def _sizes(self) -> tuple[tuple[int, int], ...]:
        return (self.heads, self.L), (self.kv_heads, self.S), (self.kv_heads, self.S)


CASES = (
    Case("prefill", 1024, 1024),
    Case("prefill", 1024, 1024, dtype="bfloat16"),
    Case("window", 2048, 2048, window=256),
    Case("chunk after a prefix", 256, 2048),
    Case("verify", 8, 4096),
    Case("decode", 1, 512),
    Case("decode", 1, 16384),
)
