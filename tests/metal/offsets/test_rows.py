"""Dense tensors of more than 2 ** 32 elements: only the last threadgroups of their grids are run."""

import mlx.core as mx
import numpy as np
import pytest

from ...support.attention.check import compare
from ...support.cases import normal, qkv
from ...support.products.quantized import assert_product, packed
from ..attention.arguments import HeadStrides, MaskStrides, ReadableArguments, as_bytes
from ..attention.run import (
    FastCall,
    as_memory,
    compiled,
    launch,
    readable_kernel,
)
from ..product import run as quantized
from .sparse import memory, tail

E = 64
N = 2**30 + 1  # heads: with 3 rows each, 3 * 2 ** 30 log-sum-exps
KEYS_PER_SPLIT = 24


def of_many_heads(call, heads):
    """The same call for `heads` heads, which all read the memory of the first."""
    call.args.N = call.args.heads = heads
    call.args.group = 1
    for name in ("query", "key", "value"):
        strides = getattr(call.args, name)
        setattr(call.args, name, HeadStrides(0, 0, strides.row))
    return call


def run_last(sparse, call, step, inputs, heads, rows, parts=1, dtype=mx.float32):
    """Run the last head of a call; returns its output and log-sum-exps."""
    found = call.launch(step)
    x, y, z = found.threadgroups
    buffers = {
        **inputs,
        "args": as_bytes(call.args),
        "output": sparse.zeros(parts * heads * rows * E, as_memory(mx.zeros(1, dtype)).dtype),
        "lse": sparse.zeros(parts * heads * rows * (1 if parts == 1 else 2), np.float32),
    }
    positions = [(x - 1, row, part) for part in range(z) for row in range(y)]
    kernel = compiled(call.source, found.kernel)
    outputs, reports = kernel(
        found.threadgroups, found.threads, buffers, constants=found.features, positions=positions
    )
    assert reports == []
    return outputs["output"], outputs["lse"]


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("step", ["prefill", "decode"])
def test_the_output_of_very_many_heads(step, dtype):
    inputs = qkv(batch=(1,), heads=1, kv_heads=1, L=3, S=40, E=E, dtype=dtype)
    call = of_many_heads(FastCall(*inputs), N)
    with memory() as sparse:
        output, lse = run_last(sparse, call, step, call.inputs, N, 3, dtype=dtype)
        out, sums = tail(output, 3 * E, dtype), tail(lse, 3)
    compare(out.reshape(1, 1, 3, E), sums.reshape(1, 1, 3), *inputs)


def test_the_output_of_very_many_rows():
    """The last tile of 2 ** 29 equal rows, of the last of 8 heads."""
    rows, near = 2**29, 32
    query, key, value = qkv(batch=(1,), heads=1, kv_heads=1, L=1, S=40, E=E)
    call = of_many_heads(FastCall(query, key, value), 8)
    call.args.L, call.args.query = rows, HeadStrides(0, 0, 0)
    found = call.launch("prefill")
    assert found.threadgroups == (8, rows // 32, 1)
    with memory() as sparse:
        buffers = {
            **call.inputs,
            "args": as_bytes(call.args),
            "output": sparse.zeros(8 * rows * E, np.float32),
            "lse": sparse.zeros(8 * rows, np.float32),
        }
        last = tuple(size - 1 for size in found.threadgroups)
        kernel = compiled(call.source, found.kernel)
        outputs, reports = kernel(
            found.threadgroups, found.threads, buffers, constants=found.features, positions=[last]
        )
        out, lse = tail(outputs["output"], near * E), tail(outputs["lse"], near)
    assert reports == []
    alike = mx.broadcast_to(query, (1, 1, near, E))
    compare(out.reshape(1, 1, near, E), lse.reshape(1, 1, near), alike, key, value)


def test_the_parts_of_very_many_heads_and_their_merge():
    """3 parts of the last head, which the merge kernel reads."""
    inputs = qkv(batch=(1,), heads=1, kv_heads=1, L=3, S=70, E=E)
    call = of_many_heads(FastCall(*inputs, keys_per_split=KEYS_PER_SPLIT), N)
    with memory() as sparse:
        parts, sums = run_last(sparse, call, "decode", call.inputs, N, 3, parts=3)
        output, lse = run_last(sparse, call, "merge", {"parts": parts, "sums": sums}, N, 3)
        out, log_sums = tail(output, 3 * E), tail(lse, 3)
    compare(out.reshape(1, 1, 3, E), log_sums.reshape(1, 1, 3), *inputs)


def test_all_tensors_of_the_readable_kernel():
    inputs = qkv(batch=(1,), heads=1, kv_heads=1, L=3, S=5, E=E)
    found = launch("readable_attention", N, 3)
    arguments = ReadableArguments(MaskStrides(), 3, 5, E, N, 1, E**-0.5, 0, 0)
    with memory() as sparse:
        buffers = {
            "mask": np.zeros(1, np.float32),
            "args": as_bytes(arguments),
            "output": sparse.zeros(N * 3 * E, np.float32),
            "lse": sparse.zeros(N * 3, np.float32),
        }
        for name, x in zip(("query", "key", "value"), inputs, strict=True):
            rows = x.shape[2]
            buffers[name] = sparse.laid_out(x.reshape(rows * E), (1,), (N - 1) * rows * E)
        outputs, reports = readable_kernel()(
            found.threadgroups, found.threads, buffers, positions=[(N - 1, 0, 0)]
        )
        out, lse = tail(outputs["output"], 3 * E), tail(outputs["lse"], 3)
    assert reports == []
    compare(out.reshape(1, 1, 3, E), lse.reshape(1, 1, 3), *inputs)


# Rows M and outputs N of the product.
PRODUCTS = {
    "one row, many outputs": (1, 2**30 - 3),
    "few rows, many outputs": (8, 2**29 + 5),
    "many rows, many outputs": (33, 2**29 + 5),
    "very many rows": (2**24 + 5, 300),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_quantized_product(name):
    """K is 256: 64 words and 8 groups of each output."""
    M, outputs, K = *PRODUCTS[name], 256
    m, n = min(M, 5), 4  # the last rows and outputs, which alone are not zero
    weights, a = packed(n, K, bits=8, group_size=32), normal(m, K)
    found, arguments = quantized.launch_product(M, outputs, K, 8, 32, mx.float32)
    with memory() as sparse:
        buffers = {
            "rows": sparse.laid_out(a.reshape(-1), (1,), (M - m) * K),
            "words": sparse.laid_out(weights.words.reshape(-1), (1,), (outputs - n) * K // 4),
            "scales": sparse.laid_out(weights.scales.reshape(-1), (1,), (outputs - n) * K // 32),
            "biases": sparse.laid_out(weights.biases.reshape(-1), (1,), (outputs - n) * K // 32),
            "product": sparse.zeros(M * outputs, np.float32),
            "args": arguments,
        }
        kernel = quantized.compiled(quantized.source(), found.kernel)
        last = tuple(size - 1 for size in found.threadgroups)
        written, reports = kernel(found.threadgroups, found.threads, buffers, positions=[last])
        rows = [written["product"].elements[(M - i + 1) * outputs - n :][:n].copy() for i in range(m, 0, -1)]
    assert reports == []
    in_tile = m if M <= 8 else (M - 1) % 32 + 1
    assert_product(mx.array(np.array(rows))[-in_tile:], a[-in_tile:], weights)
