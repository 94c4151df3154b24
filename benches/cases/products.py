"""Products of activations and weights, dense and packed in 4 or 8 bits, at the layer shapes of two models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import mlx.core as mx

from benches.cases.attention import DTYPES, ITEM_BYTES, SHORT_NAMES, Dtype
from benches.contestants.attention import OURS, TORCH, extension
from benches.harness.operation import Case, Operation, as_torch, evaluated, exact, random_array, sampled

MLX, MLX_FLOAT32 = "mlx", "mlx f32"
ROWS = (1, 16, 512)  # of activations: a token, a small batch, a prompt
PACKED_ROWS = (1, 8, 64, 512)
GROUP_SIZE = 64
# outputs and inputs of the attention output, gate or up, and down of a layer
SHAPES = {
    "0.5b": ((896, 896), (4864, 896), (896, 4864)),
    "7b": ((3584, 3584), (18944, 3584), (3584, 18944)),
}
HEAD = (151936, 896)  # scores of the vocabulary, 0.5b
# MLX multiplies on one core of a CPU, at about so many operations a second, and nobody waits for minutes.
MLX_RATE: dict[str, float] = {"float32": 2e9, "bfloat16": 2e8}
MLX_SECONDS = 4.0
# Short dense products are evaluated several at once, as a model does: MLX takes 30 to 60 us to wake the
# thread of an evaluation, however much there is to do.
AT_ONCE, SHORT_FLOPS = 8, 1e8


def dense_cases() -> Iterator[Case]:
    for dtype in DTYPES:
        for model, shapes in SHAPES.items():
            for outputs, inputs in shapes:
                for rows in ROWS:
                    name = f"{SHORT_NAMES[dtype]} {model} {rows} x {inputs} -> {outputs}"
                    build = partial(_dense, dtype, rows, outputs, inputs)
                    yield Case("linear", name, build, quick=model == "0.5b")


def packed_cases() -> Iterator[Case]:
    for bits in (4, 8):
        for model, (outputs, inputs) in (("0.5b", SHAPES["0.5b"][1]), ("7b", SHAPES["7b"][1])):
            for rows in PACKED_ROWS:
                yield _packed_case(bits, model, rows, outputs, inputs)
        yield _packed_case(bits, "0.5b head", 1, *HEAD)


def _packed_case(bits: int, model: str, rows: int, outputs: int, inputs: int) -> Case:
    name = f"bf16 {bits} bit {model} {rows} x {inputs} -> {outputs}"
    return Case("packed", name, partial(_packed, bits, rows, outputs, inputs), quick=model == "0.5b")


def _dense(dtype: Dtype, rows: int, outputs: int, inputs: int, threads: int) -> Operation:
    x = random_array((rows, inputs), dtype, 0)
    w = random_array((outputs, inputs), dtype, 1, inputs**-0.5)
    flops = 2.0 * rows * outputs * inputs
    at_once = min(AT_ONCE, max(1, int(SHORT_FLOPS / flops)))
    calls: dict[str, Callable[[], Any]] = {}
    missing: dict[str, str] = {}
    if hasattr(extension(), "linear"):
        linear = extension().linear
        calls[OURS] = evaluated(lambda: linear(x, w), at_once)
    else:
        missing[OURS] = "this build has no linear"
    _add_mlx(MLX, calls, missing, dtype, flops, lambda: x @ w.T, at_once)
    _add_torch(calls, missing, threads, x, w, at_once)
    sample = sampled(rows, outputs)
    chosen_rows, columns = (mx.array(axis) for axis in sample)
    return Operation(
        dtype=dtype,
        flops=flops,
        bytes=(rows * inputs + outputs * inputs + rows * outputs) * ITEM_BYTES[dtype],
        calls=calls,
        sample=sample,
        expected=exact(x[chosen_rows]) @ exact(w[columns]).T,
        at_once=at_once,
        missing=missing,
    )


def _packed(bits: int, rows: int, outputs: int, inputs: int, threads: int) -> Operation:
    del threads  # PyTorch has no product of this format
    x = random_array((rows, inputs), "bfloat16", 0)
    dense = random_array((outputs, inputs), "bfloat16", 1, inputs**-0.5)
    weight, scales, biases = mx.quantize(dense, group_size=GROUP_SIZE, bits=bits)
    mx.eval(weight, scales, biases)
    del dense
    product = extension().quantized_matmul
    flops = 2.0 * rows * outputs * inputs
    calls: dict[str, Callable[[], Any]] = {
        OURS: evaluated(lambda: product(scales, biases, GROUP_SIZE, bits, x, weight, True))
    }
    missing: dict[str, str] = {}
    # In bfloat16 MLX also sums in bfloat16, which this gate refuses; it is slower, too.
    wide, wide_scales, wide_biases = (array.astype(mx.float32) for array in (x, scales, biases))
    mx.eval(wide, wide_scales, wide_biases)
    _add_mlx(
        MLX_FLOAT32, calls, missing, "float32", flops,
        lambda: mx.quantized_matmul(wide, weight, wide_scales, wide_biases, True, GROUP_SIZE, bits),
    )  # fmt: skip
    sample = sampled(rows, outputs)
    chosen_rows, columns = (mx.array(axis) for axis in sample)
    matrix = mx.dequantize(weight[columns], wide_scales[columns], wide_biases[columns], GROUP_SIZE, bits)
    return Operation(
        dtype="bfloat16",
        flops=flops,
        bytes=weight.nbytes + scales.nbytes + biases.nbytes + x.nbytes + 2 * rows * outputs,
        calls=calls,
        sample=sample,
        expected=exact(x[chosen_rows]) @ exact(matrix).T,
        missing=missing,
    )


def _add_mlx(
    name: str,
    calls: dict[str, Callable[[], Any]],
    missing: dict[str, str],
    dtype: str,
    flops: float,
    build: Callable[[], mx.array],
    at_once: int = 1,
) -> None:
    if flops / MLX_RATE[dtype] <= MLX_SECONDS:
        calls[name] = evaluated(build, at_once)
    else:
        missing[name] = f"it would need more than {MLX_SECONDS:g} s for a call"


def _add_torch(
    calls: dict[str, Callable[[], Any]],
    missing: dict[str, str],
    threads: int,
    x: mx.array,
    w: mx.array,
    at_once: int,
) -> None:
    try:
        import torch
    except ImportError:
        missing[TORCH] = 'PyTorch is not installed: pip install ".[bench]"'
        return
    torch.set_grad_enabled(False)
    torch.set_num_threads(threads)
    given, weight = as_torch(x), as_torch(w)
    calls[TORCH] = lambda: [torch.nn.functional.linear(given, weight) for _ in range(at_once)][-1]
