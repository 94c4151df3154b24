"""One new token a sequence: tiny_llm on pages and on dense arrays, and MLX with and without the gathering."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from benches.cases.decode import Case
from benches.contestants.attention import TOLERANCE, attend_in_float64
from benches.contestants.shuffled_pages import ShuffledPages
from benches.harness.contestant import Contestant, evaluated
from benches.harness.gate import Gate, to_numpy
from benches.names import DENSE, GATHERED, MX_FAST, TINY_LLM
from tiny_llm.runtime.extension import load_extension


class Inputs:
    """Query, and keys and values both in pages and dense, drawn from N(0, 1) with a fixed seed.

    Page ids are shuffled, and free slots hold NaN: a contestant that reads one fails the gate.
    """

    def __init__(self, case: Case) -> None:
        dtype, longest = getattr(mx, case.dtype), max(case.lengths)
        keys = mx.random.split(mx.random.key(0), 3)
        self.query = mx.random.normal((case.batch, case.heads, case.D), key=keys[0]).astype(dtype)
        used = mx.arange(longest) < mx.array(case.lengths)[:, None]  # [batch, longest]
        self.mask = used[:, None, None]
        places = ShuffledPages(case.lengths, case.page)
        self.table, self.pages, self.dense = places.table, [], []
        for key in keys[1:]:
            rows = mx.random.normal((case.batch, longest, case.kv_heads, case.D), key=key).astype(dtype)
            self.pages.append(places.pool(rows))
            self.dense.append(places.dense(rows))
        self.lengths = mx.array(case.lengths, mx.int32)
        mx.eval(self.query, self.mask, self.table, self.lengths, self.pages, self.dense)


def tiny_llm(case: Case, inputs: Inputs, threads: int) -> Contestant:
    """The kernel that `paged_attention_decode` calls, on some threads."""
    kernel = load_extension().attention_in_pages
    starts = list(range(case.batch + 1))
    options: dict[str, Any] = {"layout": "PSHE", "cu_seqlens_q": starts, "threads": threads}
    arrays = (inputs.query, *inputs.pages, inputs.table, inputs.lengths)
    call = evaluated(lambda: kernel(*arrays, **options)[0])
    return Contestant(TINY_LLM, call, isa=load_extension().cpu_isa(), baseline=False)


def dense(case: Case, inputs: Inputs, threads: int) -> Contestant:
    """`flash_attention` on the same keys and values without pages."""
    kernel = load_extension().attention
    query = inputs.query[:, :, None]
    options: dict[str, Any] = {"kv_lens": inputs.lengths, "threads": threads, "return_lse": False}
    call = evaluated(lambda: kernel(query, *inputs.dense, **options)[0])
    return Contestant(DENSE, call, isa=load_extension().cpu_isa(), baseline=False)


def mx_fast(case: Case, inputs: Inputs) -> Contestant:
    """`mx.fast.scaled_dot_product_attention` on dense arrays and a mask that exist before; one core."""
    query, mask = inputs.query[:, :, None], inputs.mask if case.ragged else None
    options = {"scale": case.D**-0.5, "mask": mask}
    call = evaluated(lambda: mx.fast.scaled_dot_product_attention(query, *inputs.dense, **options))
    return Contestant(MX_FAST, call, one_core=True)


def gathered(case: Case, inputs: Inputs) -> Contestant:
    """The same on pages: what MLX has to do without a kernel for them. One core."""
    query, longest = inputs.query[:, :, None], max(case.lengths)
    present = mx.maximum(inputs.table, 0)
    held = inputs.mask.swapaxes(2, 3)  # [batch, 1, longest, 1]
    options = {"scale": case.D**-0.5, "mask": inputs.mask}

    def in_order(pages: mx.array) -> mx.array:
        rows = mx.flatten(pages[present], 1, 2)[:, :longest].swapaxes(1, 2)
        return mx.where(held, rows, 0)

    def build() -> mx.array:
        return mx.fast.scaled_dot_product_attention(query, *map(in_order, inputs.pages), **options)

    return Contestant(GATHERED, evaluated(build), one_core=True)


def gate(case: Case, inputs: Inputs) -> Gate:
    """All rows, [sequence, head], are compared with float64."""
    query, key, value = map(to_numpy, (inputs.query, *inputs.dense))
    expected = []
    for number, length in enumerate(case.lengths):
        seen = np.zeros((1, length), bool)
        parts = (query[number][:, None], key[number, :, :length], value[number, :, :length])
        expected.append(attend_in_float64(*parts, seen)[:, 0])
    shape = (case.batch * case.heads, case.D)
    rows, columns = np.arange(shape[0]), np.arange(case.D)
    return Gate(shape, rows, columns, np.concatenate(expected), TOLERANCE[case.dtype])
