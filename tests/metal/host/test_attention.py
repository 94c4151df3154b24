"""The host side of Metal: the kernels that it dispatches, run by the harness, compute attention."""

import mlx.core as mx
import pytest

from ...support.attention.check import compare
from ...support.cases import DTYPE_IDS, DTYPES, lengths, normal, qkv
from ..attention.readable_cases import HEADS, MASK_SHAPES, MASK_TYPES, Case
from . import gpu

pytestmark = pytest.mark.usefixtures("metal_device")

every_type = pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)


def check(*inputs, **options):
    """The harness reports nothing, and the result is attention; returns the record."""
    out, lse, record = gpu.attention(*inputs, **options)
    assert record.reports == []
    assert gpu.explain(*inputs, **options)["path"] == f"metal.{record.kernels[0]}"
    compare(out, lse, *inputs, **options)
    return record


@every_type
@pytest.mark.parametrize("E", [1, 64, 72, 80, 128, 200, 256])
@pytest.mark.parametrize("L", [1, 33])
def test_every_head_size(dtype, E, L):
    check(*qkv(L=L, S=40, E=E, dtype=dtype), causal=True)


@pytest.mark.parametrize(
    ("L", "S"), [(1, 1), (8, 100), (9, 100), (40, 17), (5, 0), (33, 0), (70, 131), (2, 1100)]
)
def test_lengths(L, S):
    check(*qkv(batch=(1,), heads=2, kv_heads=1, L=L, S=S, E=64, dtype=mx.float16), causal=True)


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize("L", [2, 9])
def test_grouped_heads(heads, kv_heads, L):
    check(*qkv(heads=heads, kv_heads=kv_heads, L=L, S=20, E=64))


@pytest.mark.parametrize("kind", MASK_TYPES)
@pytest.mark.parametrize("shape", MASK_SHAPES, ids=str)
def test_masks(shape, kind):
    case = Case("", 2, 4, 2, 35, 37, 48, causal=kind == "f16", mask_shape=shape, mask_type=kind)
    check(*case.inputs(), **case.options())


@pytest.mark.parametrize("L", [3, 40], ids=["decode", "prefill"])
@pytest.mark.parametrize(
    "options",
    [
        {"window": 10, "causal": True},
        {"window": (5, 2)},
        {"softcap": 3.0},
        {"sinks": normal(4)},
        {"q_lens": lengths(3, 1), "kv_lens": lengths(33, 20), "causal": True},
        {"kv_start": lengths(4, 0), "kv_lens": lengths(17, 0)},
        {"kv_lens": mx.array([33, 20], dtype=mx.int64), "causal": True},
        {"scale": 0.0},
    ],
    ids=lambda options: " ".join(options),
)
def test_options(options, L):
    check(*qkv(L=L, S=40), **options)


def test_all_at_once_over_splits():
    mask = normal(2, 1, 4, 1100)
    options = {"window": (900, 3), "softcap": 4.0, "sinks": normal(4), "kv_lens": lengths(1050, 700)}
    record = check(*qkv(L=4, S=1100, E=80, dtype=mx.bfloat16), mask=mask, causal=True, **options)
    assert record.kernels[0] == "attention_decode_split_bf16_e80"


def test_the_decode_kernel_takes_up_to_8_rows_and_prefill_more():
    assert check(*qkv(L=8, S=20, E=64)).kernels == ["attention_decode_f32_e64"]
    assert check(*qkv(L=9, S=20, E=64)).kernels == ["attention_prefill_f32_e64"]


def test_a_sliced_cache_is_not_copied():
    """Huge values after the slice would change the result."""
    query, key, value = qkv(L=1, S=40, E=64)
    caches = [mx.concatenate([x, mx.full((2, 2, 24, 64), 1e30)], axis=2) for x in (key, value)]
    sliced = [cache[:, :, :40] for cache in caches]
    mx.eval(sliced)
    assert gpu.explain(query, *sliced)["copies_bytes"] == 0
    check(query, *sliced, causal=True)


LAYOUTS = {
    "rows before heads": lambda x: mx.contiguous(x.swapaxes(-3, -2)).swapaxes(-3, -2),
    "columns first": lambda x: mx.contiguous(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "backwards": lambda x: mx.contiguous(x[..., ::-1, :])[..., ::-1, :],
    "batch swapped": lambda x: mx.contiguous(x.swapaxes(0, 1)).swapaxes(0, 1),
    "every other row": lambda x: mx.repeat(x, 2, axis=-2)[..., ::2, :],
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("L", [3, 33])
def test_layouts(layout, L):
    inputs = [layout(x) for x in qkv(batch=(2, 3), heads=2, kv_heads=1, L=L, S=35, E=64)]
    check(*inputs)


@pytest.mark.parametrize("L", [3, 33])
def test_query_key_and_value_may_have_different_layouts(L):
    query, key, value = qkv(L=L, S=35, E=64)
    cache = mx.concatenate([key, mx.full((2, 2, 24, 64), 1e30)], axis=2)
    check(LAYOUTS["rows before heads"](query), cache[:, :, :35], value)
    check(query, LAYOUTS["rows before heads"](key), LAYOUTS["batch swapped"](value))


def test_explain_counts_copies():
    query, key, value = qkv(batch=(2, 3), L=3, S=35, E=64)
    swapped = LAYOUTS["batch swapped"](key)
    mx.eval(swapped)
    assert gpu.explain(query, swapped, value)["copies_bytes"] == key.nbytes


@pytest.mark.parametrize("shape", [(3, 1, 1, 35), (2, 1, 2, 1, 35), (2, 3, 1, 3, 35), (2, 1, 1, 1, 1)])
def test_masks_over_two_batch_axes(shape):
    check(*qkv(batch=(2, 3), heads=2, kv_heads=1, L=3, S=35, E=64), mask=normal(*shape))


@pytest.mark.parametrize(
    "kv_lens",
    [
        mx.array([[35, 7, 0], [1, 20, 34]]),
        mx.array([[35, 1], [7, 20], [0, 34]]).T,
        mx.broadcast_to(mx.array([35, 7, 0]), (2, 3)),
        mx.broadcast_to(mx.array(7, dtype=mx.int64), (2, 3)),
    ],
    ids=["dense", "transposed", "spread", "spread int64"],
)
def test_lengths_over_two_batch_axes(kv_lens):
    inputs = qkv(batch=(2, 3), heads=2, kv_heads=1, L=3, S=35, E=64)
    check(*inputs, kv_lens=kv_lens, sinks=normal(2))


def test_mapped_inputs_are_a_batch():
    """Mapped axes are moved, not copied, and each entry has its own mapped sinks."""
    extension, device = gpu.modules()
    query, key, value = qkv(batch=(2, 3), heads=2, kv_heads=1, L=3, S=35, E=64)
    sinks = normal(2, 2)
    mx.eval(query, key, value, sinks)

    def call(query, key, sinks):
        return extension.attention(query, key, value[0], sinks=sinks, stream=device.gpu_stream())

    outputs, lses = mx.vmap(call, in_axes=(0, 0, 1))(query, key, sinks)
    assert gpu.evaluate(outputs, lses).reports == []
    for entry in range(2):
        compare(outputs[entry], lses[entry], query[entry], key[entry], value[0], sinks=sinks[:, entry])


@pytest.mark.skipif(gpu.IS_REAL, reason="a real GPU records nothing")
def test_nothing_to_compute_dispatches_nothing():
    assert gpu.attention(*qkv(L=0, S=5))[2].kernels == []
    assert gpu.attention(*qkv(batch=(0,), L=4))[2].kernels == []


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("E", [64, 128])
def test_the_flat_form_takes_the_readable_kernel(causal, E):
    extension, device = gpu.modules()
    query, key, value = qkv(batch=(1,), heads=4, kv_heads=2, L=33, S=40, E=E)
    mask = normal(4, 33, 40)
    mx.eval(query, key, value, mask)
    arguments = query[0], key[0], value[0], mask, 0.3, causal
    options = {"num_kv_heads": 2, "num_heads": 4, "stream": device.gpu_stream()}
    explanation = extension.explain_flash_attention(*arguments, **options)
    assert (explanation["path"], explanation["reasons"]) == ("metal.flash_attention_f32_e128", ())
    flat = extension.flash_attention(*arguments, **options)
    record = gpu.evaluate(flat)
    assert (record.kernels, record.reports) == (["flash_attention_f32_e128"], [])
    lse = extension.attention(query, key, value, mask=mask, scale=0.3, causal=causal)[1]
    compare(flat[None], lse, query, key, value, scale=0.3, mask=mask[None], causal=causal)


def test_the_flat_form_takes_a_fast_kernel_for_wide_heads():
    extension, device = gpu.modules()
    query = normal(2, 9, 160)
    mx.eval(query)
    heads = {"num_kv_heads": 2, "num_heads": 2}
    output = extension.flash_attention(query, query, query, **heads, stream=device.gpu_stream())
    assert gpu.evaluate(output).kernels == ["attention_prefill_f32_e256"]


def test_the_last_run_is_the_explained_one():
    extension, _ = gpu.modules()
    inputs = qkv(L=2, S=1100, E=64)
    explanation = gpu.explain(*inputs, causal=True)
    gpu.attention(*inputs, causal=True)
    run = extension.last_run()
    for name in ("path", "splits", "tiles_visited", "tiles_total"):
        assert run[name] == explanation[name]
    assert explanation["splits"] == 3
    assert explanation["workspace_bytes"] == 3 * 2 * 4 * 2 * (64 + 2) * 4
