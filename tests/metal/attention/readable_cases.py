"""Calls for the readable kernel: lengths, heads, head sizes and masks."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
import numpy as np

from ...support.cases import normal, qkv, random_mask

# Complete and incomplete tiles of 32 x 32; more queries than keys, and fewer; one query, one key.
LENGTHS = [
    (1, 1),
    (1, 33),
    (1, 257),
    (5, 37),
    (31, 97),
    (32, 32),
    (33, 65),
    (40, 17),
    (64, 64),
    (65, 33),
    (70, 131),
]
HEADS = [(1, 1), (2, 2), (6, 3), (7, 1), (14, 2), (21, 3), (16, 2)]
HEAD_SIZES = [1, 2, 7, 8, 31, 32, 33, 48, 64, 72, 80, 96, 100, 127, 128]
MASK_SHAPES = [(37,), (35, 37), (2, 1, 1, 37), (4, 35, 1), (2, 4, 35, 37)]
MASK_TYPES = {"bool": mx.bool_, "f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}


class Case(NamedTuple):
    name: str
    batch: int = 1
    heads: int = 4
    kv_heads: int = 2
    L: int = 33
    S: int = 65
    E: int = 64
    causal: bool = False
    mask_shape: tuple[int, ...] | None = None
    mask_type: str = "f32"
    scale: float | None = None

    def inputs(self) -> tuple[mx.array, mx.array, mx.array]:
        sizes = {"heads": self.heads, "kv_heads": self.kv_heads, "L": self.L, "S": self.S, "E": self.E}
        return qkv(batch=(self.batch,), **sizes)

    def options(self) -> dict:
        return {"scale": self.scale, "mask": self.mask(), "causal": self.causal}

    def mask(self) -> mx.array | None:
        """Hides a third of the keys, and all keys of row 3 if the mask has rows."""
        if self.mask_shape is None:
            return None
        keep = np.array(random_mask(*self.mask_shape))
        if len(self.mask_shape) > 1 and self.mask_shape[-2] > 3:
            keep[..., 3, :] = False
        if self.mask_type == "bool":
            return mx.array(keep)
        bias = mx.where(mx.array(keep), normal(*self.mask_shape, seed=9), -mx.inf)
        return bias.astype(MASK_TYPES[self.mask_type])


def _cases() -> list[Case]:
    found = []
    for causal in (False, True):
        kind = "causal" if causal else "full"
        found += [Case(f"L={L} S={S} {kind}", L=L, S=S, causal=causal) for L, S in LENGTHS]
        found += [
            Case(f"heads={h}/{kv} {kind}", batch=2, heads=h, kv_heads=kv, L=3, S=40, E=40, causal=causal)
            for h, kv in HEADS
        ]
    found += [Case(f"E={E}", L=34, S=35, E=E, causal=E % 2 == 0) for E in HEAD_SIZES]
    found += [
        Case(
            f"mask {shape} {kind}",
            2,
            4,
            2,
            35,
            37,
            48,
            causal=kind == "f16",
            mask_shape=shape,
            mask_type=kind,
        )
        for shape in MASK_SHAPES
        for kind in MASK_TYPES
    ]
    found += [Case(f"scale={scale}", scale=scale, causal=True) for scale in (0.0, -0.3, 2.0)]
    return found


CASES = _cases()
