"""Kernels compute offsets in 64 bits along every axis of every input."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ...support.attention.check import compare
from ...support.cases import lengths, normal, qkv
from ..attention.arguments import HeadStrides, LengthsInput, MaskStrides, ReadableArguments, as_bytes
from ..attention.run import FastCall, Result, launch, readable_kernel
from .sparse import memory

BATCH, HEADS, L, S, E = 2, (4, 2), 3, 5, 64
KERNELS = ("prefill", "decode", "split")
KEYS_PER_SPLIT = 3
FAR = [2**31 - 64, 2**31 + 64, 2**32, 2**32 + 192, 3 * 2**31, 2**33 - 64]

every_kernel = pytest.mark.parametrize("kernel", KERNELS)


def strides_of(sizes):
    """Strides of all axes but the last: dense or large, and no two rows overlap."""
    dense = [int(np.prod(sizes[axis + 1 :])) for axis in range(len(sizes) - 1)]
    far = [
        st.sampled_from([near, *(stride + apart * 2**24 for stride in FAR)])
        for near, apart in zip(dense, (0, 1, 5), strict=True)
    ]
    return st.tuples(*far).filter(lambda strides: any(stride >= FAR[0] for stride in strides))


def run_at(kernel, call, inputs):
    """Run a call with other memory for some of its inputs."""
    if kernel != "split":
        return call.run(kernel, {**call.inputs, **inputs})
    call.args.keys_per_split = KEYS_PER_SPLIT
    parts = call.run("decode", {**call.inputs, **inputs}, parts=-(-call.args.S // KEYS_PER_SPLIT))
    whole = call.run("merge", {"parts": np.array(parts.out), "sums": np.array(parts.lse)})
    return whole._replace(reports=parts.reports + whole.reports)


def check(result, *inputs, **options):
    assert result.reports == []
    compare(result.out, result.lse, *inputs, **options)


def at_far(kernel, given, mask_strides=None, **options):
    """`given` has strides of batch, head and row for some of query, key and value."""
    inputs = dict(
        zip(("query", "key", "value"), qkv(heads=HEADS[0], kv_heads=HEADS[1], L=L, S=S, E=E), strict=True)
    )
    call = FastCall(*inputs.values(), **options)
    with memory() as sparse:
        far = {}
        for name, strides in given.items():
            far[name] = sparse.laid_out(inputs[name], (*strides, 1))
            setattr(call.args, name, HeadStrides(*strides))
        if mask_strides is not None:
            far["mask"] = sparse.laid_out(options["mask"], mask_strides)
            call.args.mask = MaskStrides(*mask_strides)
        check(run_at(kernel, call, far), *inputs.values(), **options)


@every_kernel
@settings(max_examples=12, deadline=None)
@given(
    query=strides_of((BATCH, HEADS[0], L, E)),
    key=strides_of((BATCH, HEADS[1], S, E)),
    value=strides_of((BATCH, HEADS[1], S, E)),
)
def test_query_key_and_value(kernel, query, key, value):
    at_far(kernel, {"query": query, "key": key, "value": value}, causal=True)


@every_kernel
@pytest.mark.parametrize("axis", range(3), ids=["batch", "head", "row"])
@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_one_axis_of_one_tensor(name, axis, kernel):
    heads, rows = (HEADS[0], L) if name == "query" else (HEADS[1], S)
    dense = [heads * rows * E, rows * E, E]
    dense[axis] = 2**32 + 2**31 + 64
    at_far(kernel, {name: dense})


@every_kernel
@pytest.mark.parametrize("axis", range(4), ids=["batch", "head", "row", "key"])
@pytest.mark.parametrize("dtype", [mx.bool_, mx.float32, mx.float16, mx.bfloat16], ids=str)
def test_one_axis_of_the_mask(dtype, axis, kernel):
    mask = normal(BATCH, HEADS[0], L, S, seed=9)
    strides = [HEADS[0] * L * S, L * S, S, 1]
    strides[axis] = 2**32 + 2**31 + 64
    at_far(kernel, {}, strides, mask=(mask > -0.5) if dtype == mx.bool_ else mask.astype(dtype))


@every_kernel
def test_lengths_and_sinks(kernel):
    """The lengths and sinks of 4 batch entries, 2 ** 30 words or more apart."""
    query, key, value = qkv(batch=(4,), heads=4, L=L, S=S, E=E)
    sinks, counts = normal(4, 4), [2, 5, 1, 4]
    call = FastCall(query, key, value, sinks=sinks[0], kv_lens=lengths(*counts))
    with memory() as sparse:
        far = {"kv_lens": sparse.laid_out(lengths(*counts), (2**30,))}
        call.args.kv_lens = LengthsInput(1, 2**30)
        far["sinks"] = sparse.laid_out(sinks, (2**32, 5 * 2**32))
        call.args.sinks_batch, call.args.sinks_head = 2**32, 5 * 2**32
        result = run_at(kernel, call, far)
    assert result.reports == []
    for b in range(4):
        own = [x[b : b + 1] for x in (result.out, result.lse, query, key, value)]
        compare(*own, sinks=sinks[b], kv_lens=lengths(counts[b]))


@pytest.mark.parametrize("kernel", ["prefill", "decode"])
def test_the_last_keys_of_very_many(kernel):
    """2 ** 29 keys, of which a window or `kv_start` leaves the last few."""
    count, near = 2**29, 40
    query, key, value = qkv(batch=(1,), heads=2, kv_heads=1, L=L, S=near, E=E)
    mask = normal(near, seed=9)
    for options in ({"window": (6, 0)}, {"kv_start": lengths(count - 7)}):
        call = FastCall(query, key, value, **options, mask=mask)
        call.args.S = count
        with memory() as sparse:
            first = (count - near) * E
            far = {
                name: sparse.laid_out(x, (0, 0, E, 1), first) for name, x in (("key", key), ("value", value))
            }
            far["mask"] = sparse.laid_out(mask, (1,), count - near)
            result = call.run(kernel, {**call.inputs, **far})
        means = {"window": (6, 0)} if "window" in options else {"kv_start": lengths(near - 7)}
        check(result, query, key, value, mask=mask, **means)


@pytest.mark.parametrize("axis", range(4), ids=["batch", "head", "row", "key"])
def test_the_mask_of_the_readable_kernel(axis):
    query, key, value = qkv(heads=HEADS[0], kv_heads=HEADS[1], L=L, S=S, E=E)
    mask = normal(BATCH, HEADS[0], L, S, seed=9)
    strides = [HEADS[0] * L * S, L * S, S, 1]
    strides[axis] = 2**32 + 2**31 + 64
    numbers = (L, S, E, HEADS[0], HEADS[0] // HEADS[1], E**-0.5, 0, 2)
    found = launch("readable_attention", BATCH * HEADS[0], L)
    with memory() as sparse:
        buffers = {
            **{name: np.array(x) for name, x in (("query", query), ("key", key), ("value", value))},
            "mask": sparse.laid_out(mask, strides),
            "args": as_bytes(ReadableArguments(MaskStrides(*strides), *numbers)),
            "output": np.zeros(query.shape, np.float32),
            "lse": np.zeros(query.shape[:3], np.float32),
        }
        outputs, reports = readable_kernel()(found.threadgroups, found.threads, buffers)
    result = Result(mx.array(outputs["output"]), mx.array(outputs["lse"]), reports)
    check(result, query, key, value, mask=mask)
