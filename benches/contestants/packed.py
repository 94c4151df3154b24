"""Causal attention of packed prompts by tiny_llm, the whole score matrix, one tile, and MLX."""

from __future__ import annotations

from itertools import pairwise

import mlx.core as mx
import numpy as np

from benches.cases.packed import Packed, Prompts
from benches.contestants.attention import TOLERANCE, attend_in_float64
from benches.harness.contestant import Contestant, evaluated
from benches.harness.gate import Gate, to_numpy
from benches.names import MX_FAST, NAIVE_TILE, STANDARD, TINY_LLM, Missing
from tiny_llm.course.packed_prompts import (
    equal_prompts,
    naive_tile_attention,
    naive_tile_tokens,
    standard_attention,
)
from tiny_llm.runtime.extension import load_extension

MOST_CHECKED = 96  # positions of a prompt that are compared with float64


class Inputs:
    """Query, key and value of all prompts, drawn from N(0, 1) with a fixed seed."""

    def __init__(self, case: Packed) -> None:
        heads = (case.heads, case.kv_heads, case.kv_heads)
        keys = mx.random.split(mx.random.key(0), 3)
        self.query, self.key, self.value = (
            mx.random.normal((case.tokens, count, case.D), key=key).astype(getattr(mx, case.dtype))
            for count, key in zip(heads, keys, strict=True)
        )
        mx.eval(*self.arrays)

    @property
    def arrays(self) -> tuple[mx.array, mx.array, mx.array]:
        return self.query, self.key, self.value


def tiny_llm(case: Packed, inputs: Inputs, threads: int) -> Contestant:
    """The kernel of `flash_attention_varlen` and `flash_attention_prefill`, on some threads."""
    kernel = load_extension().attention
    options = {"cu_seqlens_q": case.starts, "causal": True, "threads": threads, "return_lse": False}
    call = evaluated(lambda: kernel(*inputs.arrays, **options)[0])
    return Contestant(TINY_LLM, call, isa=load_extension().cpu_isa(), baseline=False)


def standard(case: Prompts, inputs: Inputs) -> Contestant:
    """`standard_attention`: MLX operations, on one core."""
    call = evaluated(lambda: standard_attention(*inputs.arrays, case.starts, None, *_sizes(case)))
    return Contestant(STANDARD, call, one_core=True)


def naive_tile(case: Prompts, inputs: Inputs) -> Contestant:
    """`naive_tile_attention`: MLX operations, on one core; Missing if a prompt is longer than the tile."""
    fits = naive_tile_tokens(case.D)
    if case.length > fits:
        raise Missing(f"a prompt beyond {fits} tokens does not fit into one tile")
    call = evaluated(lambda: naive_tile_attention(*inputs.arrays, case.starts, None, *_sizes(case)))
    return Contestant(NAIVE_TILE, call, one_core=True)


def mx_fast(case: Prompts, inputs: Inputs) -> Contestant:
    """`mx.fast.scaled_dot_product_attention` on the prompts as one batch, on one core."""
    (batch,) = equal_prompts(case.starts)

    def build() -> mx.array:
        query, key, value = map(batch.take, inputs.arrays)
        out = mx.fast.scaled_dot_product_attention(query, key, value, scale=case.D**-0.5, mask="causal")
        return batch.put(out)

    return Contestant(MX_FAST, evaluated(build), one_core=True)


def gate(case: Packed, inputs: Inputs) -> Gate:
    """Rows are [token, head]; of every prompt some positions are compared, its ends among them."""
    query, key, value = (to_numpy(x).swapaxes(0, 1) for x in inputs.arrays)
    rows, expected = [], []
    for start, end in pairwise(case.starts):
        length, prompt = end - start, slice(start, end)
        positions = np.unique(np.linspace(0, length - 1, min(length, MOST_CHECKED)).astype(np.int64))
        hidden = np.arange(length) > positions[:, None]
        out = attend_in_float64(query[:, prompt][:, positions], key[:, prompt], value[:, prompt], hidden)
        expected.append(out.swapaxes(0, 1).reshape(-1, case.D))
        rows.append(((start + positions)[:, None] * case.heads + np.arange(case.heads)).reshape(-1))
    shape = (case.tokens * case.heads, case.D)
    tolerance = TOLERANCE[case.dtype]
    return Gate(shape, np.concatenate(rows), np.arange(case.D), np.concatenate(expected), tolerance)


def _sizes(case: Prompts) -> tuple[int, int, int]:
    return case.heads, case.kv_heads, case.D
