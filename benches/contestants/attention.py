"""Who takes part: our kernels, MLX's own attention, the readable grouped attention, and PyTorch."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from benches.cases.arrays import Inputs, to_numpy
from benches.cases.attention import Case
from tiny_llm.benchmark.harness import time_once

OURS, MX_FAST, GROUPED, TORCH = "ours", "mx.fast", "grouped", "PyTorch"


class Missing(Exception):
    """A contestant cannot take part; the text says why."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """`call` returns when the result is in memory; everything it needs was prepared before."""

    name: str
    case: Case
    call: Callable[[], Any]
    result: Callable[[Any], NDArray[np.float32]]  # what `call` returned, as [1, heads, L, D]
    uses_threads: bool = True
    isa: str | None = None
    variant: str = ""

    @property
    def label(self) -> str:
        return f"{self.name} {self.isa}" if self.isa else self.name


def extension() -> ModuleType:
    """The native module: installed, else that of the source tree."""
    try:
        return importlib.import_module("tiny_llm_ext")
    except ModuleNotFoundError:
        return importlib.import_module("extensions.tiny_llm_ext")


def ours(case: Case, inputs: Inputs, isa: str, threads: int, name: str = OURS) -> Contestant:
    """Our kernel for one instruction set."""
    attention = extension().attention
    query, key, value = inputs.arrays
    options = {"causal": case.causal, "window": case.window, "isa": isa, "threads": threads}

    def call() -> mx.array:
        out: mx.array = attention(query, key, value, **options)[0]
        mx.eval(out)
        return out

    return Contestant(name, case, call, to_numpy, isa=isa)


def mx_fast(case: Case, inputs: Inputs) -> Contestant:
    """`mx.fast.scaled_dot_product_attention`, which runs on one core."""
    query, key, value = inputs.arrays
    scale, mask = case.D**-0.5, "causal" if case.causal else None

    def call() -> mx.array:
        out = mx.fast.scaled_dot_product_attention(query, key, value, scale=scale, mask=mask)
        mx.eval(out)
        return out

    return Contestant(MX_FAST, case, call, to_numpy, uses_threads=False)


def grouped(case: Case, inputs: Inputs) -> Contestant:
    """`scaled_dot_product_attention_grouped` of tiny_llm: ordinary MLX operations, on one core."""
    try:
        from tiny_llm.attention import scaled_dot_product_attention_grouped as attention
    except ImportError as error:
        raise Missing(f"tiny_llm cannot be imported ({error})") from error
    query, key, value = inputs.arrays
    scale, mask = case.D**-0.5, "causal" if case.causal else None

    def call() -> mx.array:
        out: mx.array = attention(query, key, value, scale, mask)
        mx.eval(out)
        return out

    return Contestant(GROUPED, case, call, to_numpy, uses_threads=False)


def pytorch(case: Case, inputs: Inputs, threads: int) -> Contestant:
    """PyTorch's `scaled_dot_product_attention` on the CPU, in its faster form for grouped heads.

    It reads the very arrays of MLX. Heads are repeated, where that is faster, before the clock starts.
    """
    try:
        import torch
    except ImportError as error:
        raise Missing('PyTorch is not installed: pip install ".[bench]"') from error
    attention = torch.nn.functional.scaled_dot_product_attention
    torch.set_grad_enabled(False)
    torch.set_num_threads(threads)
    query, key, value = (torch.utils.dlpack.from_dlpack(x) for x in inputs.arrays)
    causal = case.causal and case.L > 1  # PyTorch aligns its mask at the first key; one last row sees all

    def result(out: Any) -> NDArray[np.float32]:
        array: NDArray[np.float32] = out.float().numpy()
        return array

    group = case.heads // case.kv_heads
    if group == 1:
        return Contestant(TORCH, case, lambda: attention(query, key, value, is_causal=causal), result)

    many_keys, many_values = (x.repeat_interleave(group, dim=1) for x in (key, value))
    forms: dict[str, Callable[[], Any]] = {
        "enable_gqa": lambda: attention(query, key, value, is_causal=causal, enable_gqa=True),
        "repeated heads": lambda: attention(query, many_keys, many_values, is_causal=causal),
    }
    form = min(forms, key=lambda name: _fastest_of_three(forms[name]))
    return Contestant(TORCH, case, forms[form], result, variant=form)


def _fastest_of_three(call: Callable[[], Any]) -> float:
    call()
    return min(time_once(call)[1] for _ in range(3))
