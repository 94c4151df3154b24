"""Packed prompts by tiny_llm without packing: each alone, and as a batch with padding."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import mlx.core as mx
import numpy as np

from benches.cases.varlen import Varlen
from benches.contestants.packed import Inputs
from benches.harness.contestant import Contestant, evaluated
from benches.harness.gate import Matrix, to_numpy
from benches.names import ALONE, PADDED, PADDED_LENGTHS
from tiny_llm.runtime.extension import load_extension


def each_alone(case: Varlen, inputs: Inputs, threads: int) -> Contestant:
    """`flash_attention` of one prompt after the other, each evaluated: a sample is the sum of their times."""
    kernel, options = load_extension().attention, _options(threads)
    prompts = [[_dense(x[start:end]) for x in inputs.arrays] for start, end in pairwise(case.starts)]
    mx.eval(prompts)

    def call() -> list[mx.array]:
        found = []
        for arrays in prompts:
            out: mx.array = kernel(*arrays, **options)[0]
            mx.eval(out)
            found.append(out)
        return found

    def result(found: list[mx.array]) -> Matrix:
        return np.concatenate([_rows(out[0], case) for out in found])

    return Contestant(ALONE, call, result, isa=load_extension().cpu_isa(), baseline=False)


class Rectangle:
    """The prompts as one batch [batch, heads, longest, D], with 0 after the end of each."""

    def __init__(self, case: Varlen, inputs: Inputs) -> None:
        longest = max(case.lengths)
        self.case = case
        self.arrays = [
            mx.concatenate(
                [
                    mx.pad(_dense(x[start:end]), [(0, 0), (0, 0), (0, longest - (end - start)), (0, 0)])
                    for start, end in pairwise(case.starts)
                ]
            )
            for x in inputs.arrays
        ]
        self.lengths = mx.array(case.lengths, mx.int32)
        mx.eval(self.arrays, self.lengths)

    def result(self, out: mx.array) -> Matrix:
        """Without the padding, [tokens * heads, D]."""
        prompts = zip(out, self.case.lengths, strict=True)
        return np.concatenate([_rows(prompt[:, :length], self.case) for prompt, length in prompts])


def padded(rectangle: Rectangle, threads: int) -> Contestant:
    """`flash_attention` of the batch, whose padding is computed: causal queries see none of it."""
    return _of_rectangle(PADDED, rectangle, threads, rectangle.case.padded_flops)


def padded_with_lengths(rectangle: Rectangle, threads: int) -> Contestant:
    """The same with `q_lens` and `kv_lens`, which skip the tiles of the padding."""
    lengths = {"q_lens": rectangle.lengths, "kv_lens": rectangle.lengths}
    return _of_rectangle(PADDED_LENGTHS, rectangle, threads, rectangle.case.flops, **lengths)


def _of_rectangle(
    name: str, rectangle: Rectangle, threads: int, flops: float, **lengths: mx.array
) -> Contestant:
    kernel, options = load_extension().attention, {**_options(threads), **lengths}
    call = evaluated(lambda: kernel(*rectangle.arrays, **options)[0])
    isa = load_extension().cpu_isa()
    return Contestant(name, call, rectangle.result, isa=isa, baseline=False, flops=flops)


def _options(threads: int) -> dict[str, Any]:
    return {"causal": True, "threads": threads, "return_lse": False}


def _dense(x: mx.array) -> mx.array:
    """[tokens, heads, D] -> [1, heads, tokens, D]."""
    return mx.contiguous(x.swapaxes(0, 1)[None])


def _rows(out: mx.array, case: Varlen) -> Matrix:
    """[heads, tokens, D] -> [tokens * heads, D], as packed."""
    matrix: Matrix = to_numpy(out).swapaxes(0, 1).reshape(-1, case.D)
    return matrix
