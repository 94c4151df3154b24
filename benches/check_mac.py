"""The measurements of `pdm run check-mac`: kernels of tiny_llm beside MLX, checked against the CPU first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from tiny_llm.attention import attention_reference, flash_attention
from tiny_llm.runtime.extension import load_extension
from tiny_llm_tools.benchmark.clock import interleave

ATTENTION_ERROR = {mx.float32: 2e-5, mx.float16: 4e-3, mx.bfloat16: 3e-2}
PRODUCT_ERROR = {mx.float32: 1e-5, mx.float16: 2e-3, mx.bfloat16: 1.6e-2}  # of the largest result
GROUP_SIZE, BITS = 64, 4
ROUNDS = 9

Row = dict[str, Any]
HEADS = (14, 2, 64), (32, 8, 128)  # query heads, key heads, head size
PROJECTIONS = (896, 4864), (4096, 4096)  # inputs, outputs


def rows(device: str) -> list[Row]:
    """Shapes of models on a GPU, and tiny shapes on a CPU, where the program is only tested."""
    small = device == "cpu"
    lengths = [(1, 64), (40, 40)] if small else [(1, 1024), (1, 8192), (8, 4096), (512, 512), (2048, 2048)]
    counts = [1, 9] if small else [1, 4, 8, 16, 64, 512]
    projections = [(128, 72)] if small else PROJECTIONS
    found = [
        attention_row(dtype, *heads, L, S)
        for dtype in (mx.float16, mx.bfloat16, mx.float32)
        for heads in HEADS
        for L, S in lengths
    ]
    found += [readable_row(*heads, L, S) for heads in HEADS for L, S in lengths]
    return found + [
        product_row(dtype, count, *projection)
        for dtype in (mx.float16, mx.bfloat16)
        for projection in projections
        for count in counts
    ]


def attention_row(dtype: mx.Dtype, heads: int, kv_heads: int, E: int, L: int, S: int) -> Row:
    """The kernels that `flash_attention` selects."""
    query, key, value = random_inputs(dtype, heads, kv_heads, E, L, S)
    row = compare(
        lambda: flash_attention(query, key, value, mask="causal", on_fallback="allow"),
        lambda: mx.fast.scaled_dot_product_attention(query, key, value, scale=E**-0.5, mask="causal"),
        "mx.fast",
        exact_attention(query, key, value),
        ATTENTION_ERROR[dtype],
    )
    return {"case": f"{dtype} {heads}/{kv_heads} heads of {E}, {L} rows, {S} keys, causal", **row}


def readable_row(heads: int, kv_heads: int, E: int, L: int, S: int) -> Row:
    """The flat form of the course, which runs the readable kernel."""
    query, key, value = random_inputs(mx.float32, heads, kv_heads, E, L, S)
    flat = load_extension().flash_attention
    counts = {"num_kv_heads": kv_heads, "num_heads": heads}
    row = compare(
        lambda: flat(query[0], key[0], value[0], scale=E**-0.5, is_causal=True, **counts),
        lambda: mx.fast.scaled_dot_product_attention(query, key, value, scale=E**-0.5, mask="causal"),
        "mx.fast",
        exact_attention(query, key, value)[0],
        ATTENTION_ERROR[mx.float32],
    )
    return {"case": f"flat form, {heads}/{kv_heads} heads of {E}, {L} rows, {S} keys, causal", **row}


def product_row(dtype: mx.Dtype, count: int, inputs: int, outputs: int) -> Row:
    """`quantized_matmul`. On a GPU, models use that of MLX until this one is known to be faster."""
    mx.random.seed(0)
    x = mx.random.normal((count, inputs)).astype(dtype)
    dense = (mx.random.normal((outputs, inputs)) * inputs**-0.5).astype(dtype)
    weight, scales, biases = mx.quantize(dense, group_size=GROUP_SIZE, bits=BITS)
    mx.eval(x, weight, scales, biases)
    with mx.stream(mx.cpu):
        wide_scales, wide_biases = scales.astype(mx.float32), biases.astype(mx.float32)
        exact = mx.dequantize(weight, wide_scales, wide_biases, GROUP_SIZE, BITS)
        expected = x.astype(mx.float32) @ exact.T
        mx.eval(expected)
    product = load_extension().quantized_matmul
    row = compare(
        lambda: product(scales, biases, GROUP_SIZE, BITS, x, weight, True),
        lambda: mx.quantized_matmul(x, weight, scales, biases, True, GROUP_SIZE, BITS),
        "mx.quantized_matmul",
        expected,
        PRODUCT_ERROR[dtype] * float(mx.abs(expected).max()),
    )
    case = f"{dtype} {count} rows of {inputs}, {outputs} outputs of {BITS} bits"
    return {"case": case, **row, "path": "tiny_llm_ext.quantized_matmul"}


def random_inputs(dtype: mx.Dtype, heads: int, kv_heads: int, E: int, L: int, S: int) -> list[mx.array]:
    mx.random.seed(0)
    shapes = (heads, L), (kv_heads, S), (kv_heads, S)
    arrays = [mx.random.normal((1, *shape, E)).astype(dtype) for shape in shapes]
    mx.eval(arrays)
    return arrays


def exact_attention(query: mx.array, key: mx.array, value: mx.array) -> mx.array:
    """In float32 on the CPU."""
    with mx.stream(mx.cpu):
        wide = [x.astype(mx.float32) for x in (query, key, value)]
        expected: mx.array = attention_reference(wide[0], wide[1], wide[2], mask="causal")
        mx.eval(expected)
    return expected


def compare(
    own: Callable[[], mx.array],
    other: Callable[[], mx.array],
    beside: str,
    expected: mx.array,
    allowed: float,
) -> Row:
    """Errors and seconds of both, and the name of the kernel that ran."""
    calls = {"ours": own, beside: other}
    errors = {
        name: mx.abs(call().astype(mx.float32).reshape(expected.shape) - expected).max().item()
        for name, call in calls.items()
    }
    mx.eval(own())
    path = load_extension().last_run()["path"]
    evaluated = {name: partial(_evaluate, call) for name, call in calls.items()}
    samples, _ = interleave(evaluated, repeats=ROUNDS)
    return {
        "path": path,
        "beside": beside,
        "error": errors["ours"],
        "error_beside": errors[beside],
        "allowed": allowed,
        "seconds": {name: sample.record() for name, sample in samples.items()},
        "times_as_fast": samples[beside].median / samples["ours"].median,
    }


def _evaluate(call: Callable[[], mx.array]) -> None:
    mx.eval(call())
