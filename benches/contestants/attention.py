"""Attention by tiny_llm, MLX and PyTorch, on the same arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from benches.cases.arrays import as_torch
from benches.cases.attention import Case
from benches.harness.contestant import Contestant
from benches.harness.gate import Float64, Gate, Matrix, to_numpy
from benches.names import GROUPED, MX_FAST, PYTORCH, TINY_LLM, Missing
from tiny_llm.attention import scaled_dot_product_attention_grouped
from tiny_llm.runtime.extension import load_extension
from tiny_llm_tools.benchmark.clock import time_once

# Largest row-relative error. float32 has room for a naive sum over 131072 keys (mx.fast: 2.7e-5), but not
# for TF32 or bfloat16 products (5e-4).
TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 3e-2}
ALL_ROWS_SCORES = 1024 * 1024  # up to this many scores a head, every row is compared with float64
SAMPLED_ROWS = 96


class Inputs:
    """Query, key and value of a case, drawn from N(0, 1) with a fixed seed."""

    def __init__(self, case: Case) -> None:
        keys = mx.random.split(mx.random.key(0), 3)
        q = (1, case.heads, case.L, case.D)
        kv = (1, case.kv_heads, case.S, case.D)
        self.query, self.key, self.value = (
            mx.random.normal(shape, key=key).astype(getattr(mx, case.dtype))
            for shape, key in zip((q, kv, kv), keys, strict=True)
        )
        mx.eval(self.query, self.key, self.value)

    @property
    def arrays(self) -> tuple[mx.array, mx.array, mx.array]:
        return self.query, self.key, self.value


def tiny_llm(case: Case, inputs: Inputs, isa: str, threads: int, **fields: Any) -> Contestant:
    """The kernel for one instruction set; `fields` are those of Contestant."""
    attention = load_extension().attention
    query, key, value = inputs.arrays
    options = {"causal": case.causal, "window": case.window, "isa": isa, "threads": threads}

    def call() -> mx.array:
        out: mx.array = attention(query, key, value, **options)[0]
        mx.eval(out)
        return out

    return Contestant(**{"name": TINY_LLM, "call": call, "isa": isa, **fields})


def mx_fast(case: Case, inputs: Inputs) -> Contestant:
    """`mx.fast.scaled_dot_product_attention`, which runs on one core."""
    query, key, value = inputs.arrays
    scale, mask = case.D**-0.5, "causal" if case.causal else None

    def call() -> mx.array:
        out = mx.fast.scaled_dot_product_attention(query, key, value, scale=scale, mask=mask)
        mx.eval(out)
        return out

    return Contestant(MX_FAST, call, one_core=True)


def grouped(case: Case, inputs: Inputs) -> Contestant:
    """`scaled_dot_product_attention_grouped` of tiny_llm: MLX operations, on one core."""
    query, key, value = inputs.arrays
    scale, mask = case.D**-0.5, "causal" if case.causal else None

    def call() -> mx.array:
        out: mx.array = scaled_dot_product_attention_grouped(query, key, value, scale, mask)
        mx.eval(out)
        return out

    return Contestant(GROUPED, call, one_core=True)


def pytorch(case: Case, inputs: Inputs, threads: int) -> Contestant:
    """PyTorch's `scaled_dot_product_attention` on the CPU, in its faster form for grouped heads.

    It reads the memory of the MLX arrays. If repeated heads are faster, they are repeated before the
    measurement.
    """
    try:
        import torch
    except ImportError as error:
        raise Missing('PyTorch is not installed: pip install ".[bench]"') from error
    attention = torch.nn.functional.scaled_dot_product_attention
    torch.set_grad_enabled(False)
    torch.set_num_threads(threads)
    query, key, value = map(as_torch, inputs.arrays)
    causal = (
        case.causal and case.L > 1
    )  # PyTorch's mask begins at the first key; a single query sees all keys
    times = case.heads // case.kv_heads
    if times == 1:
        return Contestant(PYTORCH, lambda: attention(query, key, value, is_causal=causal), baseline=False)

    repeated = [x.repeat_interleave(times, dim=1) for x in (key, value)]
    forms: dict[str, Callable[[], Any]] = {
        "enable_gqa": lambda: attention(query, key, value, is_causal=causal, enable_gqa=True),
        "repeated heads": lambda: attention(query, *repeated, is_causal=causal),
    }
    form = min(forms, key=lambda name: fastest_of_three(forms[name]))
    return Contestant(PYTORCH, forms[form], variant=form, baseline=False)


def fastest_of_three(call: Callable[[], Any]) -> float:
    call()
    return min(time_once(call)[1] for _ in range(3))


def gate(case: Case, inputs: Inputs) -> Gate:
    """Rows are those of all heads, one head after the other."""
    positions = _positions_to_check(case)
    rows = (np.arange(case.heads)[:, None] * case.L + positions).reshape(-1)
    expected = oracle(case, inputs, positions).reshape(-1, case.D)
    shape = (case.heads * case.L, case.D)
    return Gate(shape, rows, np.arange(case.D), expected, TOLERANCE[case.dtype])


def oracle(case: Case, inputs: Inputs, positions: NDArray[np.int64]) -> Float64:
    """Attention of the queries at these positions in float64: [heads, positions, D]."""
    query = to_numpy(inputs.query)[0][:, positions]
    key, value = to_numpy(inputs.key)[0], to_numpy(inputs.value)[0]
    hidden = np.ones((len(positions), case.S), bool)
    for number, position in enumerate(positions):
        first, last = case.visible_keys(int(position))
        hidden[number, first : last + 1] = False
    return attend_in_float64(query, key, value, hidden)


def attend_in_float64(query: Matrix, key: Matrix, value: Matrix, hidden: NDArray[np.bool_]) -> Float64:
    """query [heads, L, D], key and value [KV heads, S, D], hidden [L, S] -> [heads, L, D]."""
    out = np.empty(query.shape)
    per_kv_head = len(query) // len(key)
    for kv_head in range(len(key)):
        k, v = key[kv_head].astype(np.float64), value[kv_head].astype(np.float64)
        for head in range(kv_head * per_kv_head, (kv_head + 1) * per_kv_head):
            score = query[head].astype(np.float64) @ k.T * query.shape[-1] ** -0.5
            score[hidden] = -np.inf
            weight = np.exp(score - score.max(axis=1, keepdims=True))
            out[head] = weight @ v / weight.sum(axis=1, keepdims=True)
    return out


def _positions_to_check(case: Case) -> NDArray[np.int64]:
    if case.L * case.S <= ALL_ROWS_SCORES:
        return np.arange(case.L)
    ends = [0, 1, case.L - 2, case.L - 1]
    return np.unique(np.concatenate([ends, np.random.default_rng(0).integers(case.L, size=SAMPLED_ROWS)]))
