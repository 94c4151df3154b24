"""Forward and backward pass of attention by tiny_llm, MLX and PyTorch, on the same arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np

from benches.cases.arrays import as_torch
from benches.cases.attention import Case
from benches.cases.training import WORK
from benches.contestants import attention as forward
from benches.contestants.attention import fastest_of_three
from benches.harness.contestant import Contestant
from benches.harness.gate import Float64, Gate, Matrix, to_numpy
from benches.names import MX_FAST, NO_WINDOW, PYTORCH, TINY_LLM, Missing
from tiny_llm.runtime.extension import load_extension

# Largest error of a head's gradient, relative to the largest number of that gradient.
TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2}
MOST_DENSE_TOKENS = 2048  # mx.fast keeps all scores: a gradient of 4096 tokens takes gigabytes and minutes
WITHOUT_WINDOW = "it has no window, only a mask of all scores"
ORACLE_ROWS = 1024  # queries at a time: the scores of all would take half a gigabyte, four times


class Inputs(forward.Inputs):
    """Also the cotangent of the output."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.cotangent = mx.random.normal(self.query.shape, key=mx.random.key(1)).astype(self.query.dtype)
        mx.eval(self.cotangent)


def tiny_llm(case: Case, inputs: Inputs, threads: int) -> Contestant:
    """The kernels of the active instruction set."""
    kernel = load_extension().attention
    options = {"causal": case.causal, "window": case.window, "threads": threads}
    call = _gradients(inputs, lambda *x: kernel(*x, **options)[0])
    return Contestant(TINY_LLM, call, by_head, isa=load_extension().cpu_isa(), baseline=False)


def without_mask(case: Case) -> Case:
    """The case in which every query sees every key."""
    return replace(case, window=None, causal=False)


def without_window(case: Case, inputs: Inputs, threads: int, own_gate: Gate | None) -> Contestant:
    """The same kernels where every query sees every key; `own_gate` is that of `without_mask`."""
    whole = without_mask(case)
    own = tiny_llm(whole, inputs, threads)
    return replace(own, name=NO_WINDOW, flops=WORK * whole.flops, gate=own_gate)


def visited_tiles(contestant: Contestant) -> tuple[int, int]:
    """Score tiles that both backward passes visit in a call, and all tiles of both."""
    contestant.call()
    last = load_extension().last_run()
    return (
        int(last["tiles_visited"] + last["key_tiles_visited"]),
        int(last["tiles_total"] + last["key_tiles_total"]),
    )


def mx_fast(case: Case, inputs: Inputs) -> Contestant:
    """`mx.fast.scaled_dot_product_attention`, which runs on one core; Missing where it takes too long."""
    if case.window is not None:
        raise Missing(WITHOUT_WINDOW)
    if case.L > MOST_DENSE_TOKENS:
        raise Missing(f"measured to {MOST_DENSE_TOKENS} tokens only")
    options: dict[str, Any] = {"scale": case.D**-0.5, "mask": "causal" if case.causal else None}
    call = _gradients(inputs, lambda *x: mx.fast.scaled_dot_product_attention(*x, **options))
    return Contestant(MX_FAST, call, by_head, one_core=True)


def _gradients(inputs: Inputs, attend: Callable[..., mx.array]) -> Callable[[], list[mx.array]]:
    def call() -> list[mx.array]:
        outputs, gradients = mx.vjp(lambda *x: [attend(*x)], list(inputs.arrays), [inputs.cotangent])
        mx.eval(outputs, gradients)
        return gradients

    return call


def pytorch(case: Case, inputs: Inputs, threads: int) -> Contestant:
    """PyTorch's `scaled_dot_product_attention` on the CPU and its backward pass.

    For grouped heads in its faster form: with `enable_gqa`, or with heads repeated as part of the work.
    """
    if case.window is not None:
        raise Missing(WITHOUT_WINDOW)
    try:
        import torch
    except ImportError as error:
        raise Missing('PyTorch is not installed: pip install ".[bench]"') from error
    torch.set_num_threads(threads)
    attention = torch.nn.functional.scaled_dot_product_attention
    tensors = [as_torch(x).requires_grad_() for x in inputs.arrays]
    cotangent = as_torch(inputs.cotangent)
    times = case.heads // case.kv_heads

    def gradients(attend: Callable[..., Any]) -> Callable[[], Any]:
        def call() -> Any:
            with torch.enable_grad():
                return torch.autograd.grad(attend(*tensors), tensors, cotangent)

        return call

    def repeated(q: Any, k: Any, v: Any) -> Any:
        k, v = (x.repeat_interleave(times, dim=1) for x in (k, v))
        return attention(q, k, v, is_causal=case.causal)

    if times == 1:
        plain = gradients(lambda *x: attention(*x, is_causal=case.causal))
        return Contestant(PYTORCH, plain, by_head, baseline=False)
    forms = {
        "enable_gqa": gradients(lambda *x: attention(*x, is_causal=case.causal, enable_gqa=True)),
        "repeated heads": gradients(repeated),
    }
    form = min(forms, key=lambda name: fastest_of_three(forms[name]))
    return Contestant(PYTORCH, forms[form], by_head, variant=form, baseline=False)


def by_head(gradients: Any) -> Matrix:
    """dQ, dK and dV of MLX or PyTorch as float32 [heads of all three, tokens * D].

    A row is a head, not a token: the first query of causal attention has the gradient 0.
    """
    arrays = [to_numpy(x) if isinstance(x, mx.array) else x.float().numpy() for x in gradients]
    return np.concatenate([x.reshape(x.shape[1], -1) for x in arrays])


def gate(case: Case, inputs: Inputs) -> Gate:
    """Compares the gradients of the last GQA group with float64."""
    group = case.heads // case.kv_heads
    dq = np.arange(case.heads - group, case.heads)
    rows = np.concatenate([dq, [case.heads + case.kv_heads - 1], [case.heads + 2 * case.kv_heads - 1]])
    shape = (case.heads + 2 * case.kv_heads, case.L * case.D)
    return Gate(shape, rows, np.arange(shape[1]), oracle(case, inputs), TOLERANCE[case.dtype])


def oracle(case: Case, inputs: Inputs) -> Float64:
    """dQ of each query head of the last GQA group, dK and dV of its head, in float64."""
    group = case.heads // case.kv_heads
    query, cotangent = (to_numpy(x)[0, -group:].astype(np.float64) for x in (inputs.query, inputs.cotangent))
    k, v = (to_numpy(x)[0, -1].astype(np.float64) for x in (inputs.key, inputs.value))
    dq = np.zeros_like(query)
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    for head in range(group):
        for first in range(0, case.L, ORACLE_ROWS):
            rows = slice(first, min(first + ORACLE_ROWS, case.L))
            _add_rows(case, rows, (query[head], k, v, cotangent[head]), (dq[head], dk, dv))
    return np.stack([*dq, dk, dv]).reshape(group + 2, -1)


def _add_rows(case: Case, rows: slice, inputs: tuple[Float64, ...], gradients: tuple[Float64, ...]) -> None:
    """Add the parts of these queries to dQ, dK and dV of a head."""
    query, k, v, cotangent = inputs
    dq, dk, dv = gradients
    seen = [case.visible_keys(row) for row in range(rows.start, rows.stop)]
    keys = slice(seen[0][0], seen[-1][1] + 1)  # both ends grow with the row
    place = np.arange(keys.start, keys.stop)
    hidden = np.array([(place < first) | (place > last) for first, last in seen])
    scale = case.D**-0.5
    score = query[rows] @ k[keys].T * scale
    score[hidden] = -np.inf
    p = np.exp(score - score.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    d_p = cotangent[rows] @ v[keys].T
    d_s = p * (d_p - (d_p * p).sum(axis=1, keepdims=True)) * scale
    dq[rows] += d_s @ k[keys]
    dk[keys] += d_s.T @ query[rows]
    dv[keys] += p.T @ cotangent[rows]
