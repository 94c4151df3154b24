"""Matrix products with dense weights, and with weights of 4 and 8 bits, at the layer shapes of two models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import mlx.core as mx

from benches.cases.arrays import TOLERANCE, as_torch, exact, random_array, sampled
from benches.harness.contestant import Case, Contestant, Operation, evaluated, own
from benches.harness.gate import Gate
from benches.harness.types import DTYPES, ITEM_BYTES, SHORT_NAMES, Dtype
from benches.names import MLX, MLX_FLOAT32, PYTORCH
from tiny_llm.runtime.extension import load_extension

ROWS = (1, 16, 512)  # of activations: a token, a small batch, a prompt
PACKED_ROWS = (1, 8, 64, 512)
GROUP_SIZE = 64
# Outputs and inputs of the attention output, gate or up, and down of a layer.
SHAPES = {
    "0.5b": ((896, 896), (4864, 896), (896, 4864)),
    "7b": ((3584, 3584), (18944, 3584), (3584, 18944)),
}
HEAD = (151936, 896)  # logits of the vocabulary, 0.5b
# MLX multiplies on one core of a CPU, at about this many operations per second. Longer calls are left out.
MLX_RATE: dict[str, float] = {"float32": 2e9, "bfloat16": 2e8}
MLX_SECONDS = 4.0
# Short dense products are evaluated several at once, as in a model: waking the thread of MLX for an
# evaluation takes 30 to 60 us, however short the work is.
REPETITIONS, SHORT_FLOPS = 8, 1e8


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
    linear = load_extension().linear
    operation = Operation(
        dtype=dtype,
        flops=flops,
        bytes=(rows * inputs + outputs * inputs + rows * outputs) * ITEM_BYTES[dtype],
        gate=_gate(x, outputs, lambda columns: w[columns], dtype),
        contestants=[],
        repetitions=min(REPETITIONS, max(1, int(SHORT_FLOPS / flops))),
    )
    operation.contestants.append(own(evaluated(lambda: linear(x, w), operation.repetitions)))
    _add_mlx(operation, MLX, dtype, lambda: x @ w.T)
    _add_torch(operation, threads, x, w)
    return operation


def _packed(bits: int, rows: int, outputs: int, inputs: int, threads: int) -> Operation:
    """Without PyTorch, which has no product of this format; `threads` is that of the process."""
    x = random_array((rows, inputs), "bfloat16", 0)
    dense = random_array((outputs, inputs), "bfloat16", 1, inputs**-0.5)
    weight, scales, biases = mx.quantize(dense, group_size=GROUP_SIZE, bits=bits)
    mx.eval(weight, scales, biases)
    del dense
    product = load_extension().quantized_matmul
    # MLX accumulates in the type of the activations. In bfloat16 that fails this gate, and it is slower than
    # float32.
    wide, wide_scales, wide_biases = (array.astype(mx.float32) for array in (x, scales, biases))
    mx.eval(wide, wide_scales, wide_biases)

    def dense_rows(columns: mx.array) -> mx.array:
        return mx.dequantize(weight[columns], wide_scales[columns], wide_biases[columns], GROUP_SIZE, bits)

    operation = Operation(
        dtype="bfloat16",
        flops=2.0 * rows * outputs * inputs,
        bytes=weight.nbytes + scales.nbytes + biases.nbytes + x.nbytes + 2 * rows * outputs,
        gate=_gate(x, outputs, dense_rows, "bfloat16"),
        contestants=[own(evaluated(lambda: product(scales, biases, GROUP_SIZE, bits, x, weight, True)))],
    )
    _add_mlx(
        operation, MLX_FLOAT32, "float32",
        lambda: mx.quantized_matmul(wide, weight, wide_scales, wide_biases, True, GROUP_SIZE, bits),
    )  # fmt: skip
    return operation


def _gate(x: mx.array, outputs: int, weights_of: Callable[[mx.array], mx.array], dtype: str) -> Gate:
    """`weights_of` gives the dense weights [columns, inputs] of some columns of the result."""
    shape = (x.shape[0], outputs)
    rows, columns = sampled(*shape)
    expected = exact(x[mx.array(rows)]) @ exact(weights_of(mx.array(columns))).T
    return Gate(shape, rows, columns, expected, TOLERANCE[dtype])


def _add_mlx(operation: Operation, name: str, dtype: str, build: Callable[[], mx.array]) -> None:
    if operation.flops / MLX_RATE[dtype] <= MLX_SECONDS:
        operation.contestants.append(Contestant(name, evaluated(build, operation.repetitions)))
    else:
        operation.missing[name] = f"a call would take more than {MLX_SECONDS:g} s"


def _add_torch(operation: Operation, threads: int, x: mx.array, w: mx.array) -> None:
    try:
        import torch
    except ImportError:
        operation.missing[PYTORCH] = 'PyTorch is not installed: pip install ".[bench]"'
        return
    torch.set_grad_enabled(False)
    torch.set_num_threads(threads)
    activations, weight = as_torch(x), as_torch(w)
    repetitions = range(operation.repetitions)
    operation.contestants.append(
        Contestant(
            PYTORCH, lambda: [torch.nn.functional.linear(activations, weight) for _ in repetitions][-1]
        )
    )
