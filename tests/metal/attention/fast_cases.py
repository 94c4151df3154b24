"""Calls for the fast kernels: every pair of values of any two options."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
import numpy as np

from ...support.cases import DTYPES, normal, qkv, random_mask
from ...support.covering import covering
from .arguments import LAYOUTS, UNBOUNDED
from .readable_cases import MASK_TYPES

# Complete and incomplete tiles of 32 rows and 16 or 32 keys; more queries than keys, and fewer; one of each.
PREFILL_LENGTHS = [(1, 1), (5, 37), (33, 0), (32, 32), (33, 65), (40, 17), (65, 48), (70, 131)]
DECODE_LENGTHS = [(1, 0), (1, 1), (1, 7), (2, 64), (8, 8), (8, 5), (3, 33), (8, 100), (1, 257)]
# Those that the kernels are compiled for, and smaller ones.
HEAD_SIZES = [64, 80, 96, 128, 256, 1, 72, 200]
OPTIONS = {
    "E": HEAD_SIZES,
    "dtype": DTYPES,
    "heads": [(2, 2), (6, 3), (14, 2), (21, 3), (7, 1)],
    "causal": [False, True],
    "window": [None, 1, 7, 33, (5, 3), (-1, 2), (4, -1), 1000],
    "softcap": [None, 2.0, 30.0],
    "sinks": [None, 0.0, 80.0],
    "mask": [None, "S bool", "L,S f32", "B,1,1,S f16", "B,H,L,S bf16", "B,1,L,1 bool"],
    "lengths": [None, "keys", "start", "rows", "all", "all as int64", "none are real"],
    "layout": list(LAYOUTS),
    "scale": [None, -0.5],
    "order": [0, 1, 2, 3],
}


class FastCase(NamedTuple):
    L: int
    S: int
    E: int = 64
    dtype: mx.Dtype = mx.float32
    heads: tuple[int, int] = (4, 2)
    causal: bool = False
    window: int | tuple[int, int] | None = None
    softcap: float | None = None
    sinks: float | None = None  # their mean
    mask: str | None = None
    lengths: str | None = None
    layout: str = "dense"
    scale: float | None = None
    order: int = 0
    keys_per_split: int = UNBOUNDED
    batch: int = 2

    @property
    def name(self) -> str:
        defaults = self._field_defaults
        other = (f"{name}={value}" for name, value in self._asdict().items() if value != defaults.get(name))
        return " ".join(other).replace("mlx.core.", "")

    def inputs(self) -> tuple[mx.array, mx.array, mx.array]:
        sizes = {"heads": self.heads[0], "kv_heads": self.heads[1], "L": self.L, "S": self.S, "E": self.E}
        return qkv(batch=(self.batch,), **sizes, dtype=self.dtype)

    def options(self) -> dict:
        """The options of `flash_attention`."""
        sinks = None if self.sinks is None else normal(self.heads[0], seed=5) + self.sinks
        plain = {"scale": self.scale, "causal": self.causal, "window": self.window, "softcap": self.softcap}
        return {**plain, "mask": self.mask_array(), "sinks": sinks, **self.sequence_lengths()}

    def settings(self) -> dict:
        """Layout and order, which do not change the result."""
        return {"layout": self.layout, "order": self.order}

    def mask_array(self) -> mx.array | None:
        """Hides a third of the keys."""
        if self.mask is None:
            return None
        axes, kind = self.mask.split()
        sizes = {"B": self.batch, "H": self.heads[0], "L": self.L, "S": self.S, "1": 1}
        shape = [sizes[axis] for axis in axes.split(",")]
        keep = random_mask(*shape)
        bias = keep if kind == "bool" else mx.where(keep, normal(*shape, seed=9), -mx.inf)
        return bias.astype(MASK_TYPES[kind])

    def sequence_lengths(self) -> dict[str, mx.array]:
        if self.lengths is None:
            return {}
        start = np.arange(1, self.batch + 1) * self.S // 5
        found = {
            "q_lens": self.L - np.arange(self.batch) * self.L // 3,
            "kv_start": start,
            "kv_lens": (self.S - start) - np.arange(self.batch) * self.S // 4,
        }
        if self.lengths == "none are real":
            found = {"kv_lens": np.zeros(self.batch, int)}
        kept = {"keys": ["kv_lens"], "start": ["kv_start"], "rows": ["q_lens"]}.get(self.lengths, found)
        kind = np.int64 if self.lengths.endswith("int64") else np.int32
        return {name: mx.array(found[name].astype(kind)) for name in kept}


def cases(sizes: list[tuple[int, int]], **options: list) -> list[FastCase]:
    found = []
    for row in covering({**OPTIONS, "sizes": sizes, **options}):
        L, S = row.pop("sizes")
        found.append(FastCase(L, S, **row))
    return found


PREFILL_CASES = cases(PREFILL_LENGTHS)
DECODE_CASES = cases(DECODE_LENGTHS, keys_per_split=[UNBOUNDED, 24, 40])
