"""Attention to keys and values in pages by tiny_llm, and to the same without pages."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from benches.cases.pages import Paged
from benches.contestants.attention import TOLERANCE, attend_in_float64
from benches.contestants.shuffled_pages import ShuffledPages
from benches.harness.contestant import Contestant, evaluated
from benches.harness.gate import Gate, Matrix, to_numpy
from benches.names import DENSE, TINY_LLM
from tiny_llm.runtime.extension import load_extension


class Inputs:
    """Query, and keys and values both in pages and dense, drawn from N(0, 1) with a fixed seed."""

    def __init__(self, case: Paged) -> None:
        dtype, batch = getattr(mx, case.dtype), len(case.contexts)
        keys = mx.random.split(mx.random.key(0), 3)
        shape = (batch, case.queries, case.heads, case.D)
        query = mx.random.normal(shape, key=keys[0]).astype(dtype)
        self.query, self.dense_query = query.flatten(0, 1), mx.contiguous(query.swapaxes(1, 2))
        places = ShuffledPages(case.contexts, case.page)
        self.table, self.pages, self.dense = places.table, [], []
        shape = (batch, max(case.contexts), case.kv_heads, case.D)
        for key in keys[1:]:
            rows = mx.random.normal(shape, key=key).astype(dtype)
            pool = places.pool(rows)
            self.pages.append(mx.contiguous(pool.swapaxes(1, 2)) if case.layout == "PHSE" else pool)
            self.dense.append(places.dense(rows))
        self.lengths = mx.array(case.contexts, mx.int32)
        mx.eval(self.query, self.dense_query, self.table, self.lengths, self.pages, self.dense)


def tiny_llm(case: Paged, inputs: Inputs, threads: int) -> Contestant:
    """The kernel of `paged_attention`, on some threads."""
    kernel = load_extension().attention_in_pages
    options: dict[str, Any] = {"layout": case.layout, "cu_seqlens_q": case.starts, **_options(case, threads)}
    arrays = (inputs.query, *inputs.pages, inputs.table, inputs.lengths)
    call = evaluated(lambda: kernel(*arrays, **options)[0])
    return Contestant(TINY_LLM, call, isa=load_extension().cpu_isa(), baseline=False)


def dense(case: Paged, inputs: Inputs, threads: int) -> Contestant:
    """`flash_attention` on the same keys and values without pages."""
    kernel = load_extension().attention
    options: dict[str, Any] = {"kv_lens": inputs.lengths, **_options(case, threads)}
    call = evaluated(lambda: kernel(inputs.dense_query, *inputs.dense, **options)[0])

    def result(out: mx.array) -> Matrix:
        matrix: Matrix = to_numpy(out).swapaxes(1, 2).reshape(-1, case.D)
        return matrix

    return Contestant(DENSE, call, result, isa=load_extension().cpu_isa(), baseline=False)


def gate(case: Paged, inputs: Inputs) -> Gate:
    """All rows, [sequence, query, head], are compared with float64."""
    query, key, value = map(to_numpy, (inputs.dense_query, *inputs.dense))
    expected = []
    for number, context in enumerate(case.contexts):
        positions = np.arange(context - case.queries, context)
        hidden = np.arange(context) > positions[:, None]
        parts = (query[number], key[number, :, :context], value[number, :, :context])
        out = attend_in_float64(*parts, hidden)
        expected.append(out.swapaxes(0, 1).reshape(-1, case.D))
    shape = (case.starts[-1] * case.heads, case.D)
    rows, columns = np.arange(shape[0]), np.arange(case.D)
    return Gate(shape, rows, columns, np.concatenate(expected), TOLERANCE[case.dtype])


def _options(case: Paged, threads: int) -> dict[str, Any]:
    return {"causal": case.causal, "threads": threads, "return_lse": False}
