"""Forward and backward pass of attention by tiny_llm, MLX and PyTorch, on the same arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from benches.cases.arrays import as_torch
from benches.cases.attention import Case
from benches.contestants import attention as forward
from benches.contestants.attention import fastest_of_three
from benches.harness.contestant import Contestant
from benches.harness.gate import Float64, Gate, Matrix, to_numpy
from benches.names import MX_FAST, PYTORCH, TINY_LLM, Missing
from tiny_llm.runtime.extension import load_extension

# Largest error of a head's gradient, relative to the largest number of that gradient.
TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2}


class Inputs(forward.Inputs):
    """Also the cotangent of the output."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.cotangent = mx.random.normal(self.query.shape, key=mx.random.key(1)).astype(self.query.dtype)
        mx.eval(self.cotangent)


def tiny_llm(case: Case, inputs: Inputs, threads: int) -> Contestant:
    """The kernels of the active instruction set."""
    kernel = load_extension().attention
    call = _gradients(inputs, lambda *x: kernel(*x, causal=case.causal, threads=threads)[0])
    return Contestant(TINY_LLM, call, by_head, isa=load_extension().cpu_isa())


def mx_fast(case: Case, inputs: Inputs) -> Contestant:
    """`mx.fast.scaled_dot_product_attention`, which runs on one core."""
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
    scale = case.D**-0.5
    hidden = np.triu(np.ones((case.L, case.S), bool), 1) if case.causal else None
    dq, dk, dv = [], np.zeros_like(k), np.zeros_like(v)
    for q, d_out in zip(query, cotangent, strict=True):
        score = q @ k.T * scale
        if hidden is not None:
            score[hidden] = -np.inf
        p = np.exp(score - score.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        d_p = d_out @ v.T
        d_s = p * (d_p - (d_p * p).sum(axis=1, keepdims=True)) * scale
        dq.append(d_s @ k)
        dk += d_s.T @ q
        dv += p.T @ d_out
    return np.stack([*dq, dk, dv]).reshape(group + 2, -1)
