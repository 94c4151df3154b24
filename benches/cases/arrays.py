"""The arrays of one row, made once and seen by every contestant in place."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from benches.cases.attention import Case

_DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16}


class Inputs:
    """Query, key and value of a case, drawn from N(0, 1) with a fixed seed."""

    def __init__(self, case: Case) -> None:
        keys = mx.random.split(mx.random.key(0), 3)
        q = (1, case.heads, case.L, case.D)
        kv = (1, case.kv_heads, case.S, case.D)
        self.query, self.key, self.value = (
            mx.random.normal(shape, key=key).astype(_DTYPES[case.dtype])
            for shape, key in zip((q, kv, kv), keys, strict=True)
        )
        mx.eval(self.query, self.key, self.value)

    @property
    def arrays(self) -> tuple[mx.array, mx.array, mx.array]:
        return self.query, self.key, self.value


def to_numpy(x: mx.array) -> NDArray[np.float32]:
    """The exact values as float32 NumPy (NumPy knows no bfloat16)."""
    return np.array(x.astype(mx.float32))
