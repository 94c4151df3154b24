"""The launches that a call must make, written independently of the host, from docs/metal.md."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import mlx.core as mx

from ..attention.arguments import MASK_KINDS, UNBOUNDED

HEAD_SIZES = (64, 80, 96, 128, 256)
NAMES = {mx.float32: "f32", mx.float16: "f16", mx.bfloat16: "bf16"}
DECODE_ROWS = 8
KEYS_PER_SPLIT = 512  # on the GPU that the tests simulate


class Launch(NamedTuple):
    kernel: str
    constants: tuple[int, ...]
    threadgroups: tuple[int, int, int]
    threads: tuple[int, int, int]


class Call(NamedTuple):
    """The arguments of `flash_attention` that decide its launches."""

    L: int
    S: int
    E: int = 64
    dtype: mx.Dtype = mx.float32
    batch: int = 2
    heads: tuple[int, int] = (14, 2)
    causal: bool = False
    window: tuple[int, int] | None = None
    softcap: float | None = None
    sinks: bool = False
    mask: mx.Dtype | None = None
    lengths: tuple[str, ...] = ()
    batch_invariant: bool = False

    @property
    def N(self) -> int:
        return self.batch * self.heads[0]

    @property
    def limits(self) -> tuple[int, int]:
        """How many keys before and after its position a row sees."""
        left, right = self.window or (-1, -1)
        return tuple(UNBOUNDED if keys == -1 else keys for keys in (left, 0 if self.causal else right))

    def features(self) -> tuple[int, ...]:
        return (
            MASK_KINDS[self.mask],
            int(self.causal or self.limits != (UNBOUNDED, UNBOUNDED)),
            int(self.softcap is not None),
            int(self.sinks),
            int(bool(self.lengths)),
            int(self.E not in HEAD_SIZES),
        )


def ending(call: Call) -> str:
    return f"{NAMES[call.dtype]}_e{min(size for size in HEAD_SIZES if size >= call.E)}"


def readable(N: int, L: int) -> list[Launch]:
    return [Launch("flash_attention_f32_e128", (), (N, ceil(L / 32), 1), (32, 32, 1))]


def prefill(call: Call) -> list[Launch]:
    name = f"attention_prefill_{ending(call)}"
    return [Launch(name, call.features(), (call.N, ceil(call.L / 32), 1), (32, 4, 1))]


def decode(call: Call) -> list[Launch]:
    splits = max(1, ceil(call.S / KEYS_PER_SPLIT))
    name = f"attention_decode_{'split_' if splits > 1 else ''}{ending(call)}"
    whole = Launch(name, call.features(), (call.N, call.L, splits), (32, 8, 1))
    merge = Launch(f"attention_merge_{NAMES[call.dtype]}", (), (call.N, call.L, 1), (128, 1, 1))
    return [whole, merge] if splits > 1 else [whole]


def attention(call: Call) -> list[Launch]:
    """The launches of fast kernels."""
    few = call.L <= DECODE_ROWS and not call.batch_invariant
    return decode(call) if few else prefill(call)


def flat(N: int, L: int, S: int, E: int, causal: bool, mask: bool) -> list[Launch]:
    """The launches of the course's flat form."""
    if E <= 128:
        return readable(N, L)
    call = Call(L, S, E, batch=1, heads=(N, N), causal=causal, mask=mx.float32 if mask else None)
    return attention(call)


def product(M: int, N: int, bits: int, dtype: mx.Dtype) -> list[Launch]:
    """The launch of the quantized product."""
    format = f"{NAMES[dtype]}_b{bits}"
    if M > 8:
        return [Launch(f"quantized_many_rows_{format}", (), (ceil(N / 64), ceil(M / 32), 1), (32, 4, 1))]
    few = "one_row" if M == 1 else "few_rows"
    return [Launch(f"quantized_{few}_{format}", (), (ceil(N / 16), 1, 1), (32, 4, 1))]
