"""The flat form with arrays of any strides, on every kernel, and mapped quantized products."""

import mlx.core as mx
import pytest

from ...support.attention.check import compare
from ...support.cases import DTYPE_IDS, DTYPES, normal, qkv
from ...support.products.quantized import assert_product, packed
from ..host import gpu

pytestmark = pytest.mark.usefixtures("metal_device")

# The same numbers in another layout; the readable kernel needs dense arrays.
LAYOUTS = {
    "dense": lambda x: x,
    "columns first": lambda x: mx.contiguous(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "rows first": lambda x: mx.contiguous(x.swapaxes(0, 1)).swapaxes(0, 1),
    "backwards": lambda x: mx.contiguous(x[:, ::-1])[:, ::-1],
    "heads backwards": lambda x: mx.contiguous(x[::-1])[::-1],
    "every other row": lambda x: mx.repeat(x, 2, axis=1)[:, ::2],
    "part of a cache": lambda x: mx.pad(x, [(0, 0), (1, 4), (0, 0)], constant_values=mx.nan)[:, 1:-4],
    "some columns": lambda x: mx.pad(x, [(0, 0), (0, 0), (3, 2)], constant_values=mx.nan)[..., 3:-2],
    "some heads": lambda x: mx.pad(x, [(1, 1), (0, 0), (0, 0)], constant_values=mx.nan)[1:-1],
}
MASKS = {**LAYOUTS, "alike in all rows": lambda x: mx.broadcast_to(x[:, :1], x.shape)}
COPIED = ("columns first", "backwards", "heads backwards")  # also for the fast kernels
KERNELS = {64: "flash_attention_f32_e128", 200: "attention_{}_f32_e256"}


def check_flat(query, key, value, mask, causal=False):
    """2 batch entries with 6 query heads and 3 key/value heads each."""
    extension, device = gpu.modules()
    mx.eval([x for x in (query, key, value, mask) if x is not None])
    arguments = query, key, value, mask, 0.3, causal
    options = {"num_kv_heads": 3, "num_heads": 6, "stream": device.gpu_stream()}
    explanation = extension.explain_flash_attention(*arguments, **options)
    out = extension.flash_attention(*arguments, **options)
    record = gpu.evaluate(out)
    step = "decode" if query.shape[1] <= 8 else "prefill"
    kernel = KERNELS[query.shape[2]].format(step)
    assert (record.kernels, record.reports) == ([kernel], [])
    assert explanation["path"] == f"metal.{kernel}"
    split = [x.reshape(2, -1, *x.shape[1:]) for x in (query, key, value)]
    given = {"scale": 0.3, "causal": causal}
    if mask is not None:
        given["mask"] = mask.reshape(2, 6, *mask.shape[1:])
    lse = extension.attention(*split, **given)[1]  # from the CPU: the flat form returns none
    compare(out.reshape(split[0].shape), lse, *split, **given)
    return explanation, record


def flat(L, E):
    """Arrays [N, rows, E]."""
    return [x.reshape(-1, *x.shape[2:]) for x in qkv(batch=(2,), heads=6, kv_heads=3, L=L, S=37, E=E)]


@pytest.mark.parametrize("E", KERNELS)
@pytest.mark.parametrize("L", [3, 33])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_flat_inputs_of_any_layout(layout, L, E):
    moved = LAYOUTS[layout]
    query, key, value = flat(L, E)
    check_flat(*map(moved, (query, key, value)), None, causal=True)
    explanation, record = check_flat(query, moved(key), value, None)
    if not gpu.IS_REAL:
        in_place = layout in ("dense", "some heads") or (E == 200 and layout not in COPIED)
        copied = sum(dispatch.copies for dispatch in record.dispatches)
        assert explanation["copies_bytes"] == copied == (0 if in_place else key.nbytes)


@pytest.mark.parametrize("E", KERNELS)
@pytest.mark.parametrize("L", [3, 33])
@pytest.mark.parametrize("layout", MASKS)
def test_flat_masks_of_any_layout(layout, L, E):
    explanation, record = check_flat(*flat(L, E), MASKS[layout](normal(12, L, 37, seed=9)))
    if not gpu.IS_REAL:
        copied = sum(dispatch.copies for dispatch in record.dispatches)
        assert explanation["copies_bytes"] == copied
        assert (copied > 0) == ("backwards" in layout)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("M", [1, 3, 11])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_mapped_product(axis, M, dtype):
    """The mapped axis multiplies the rows: 3 times 3 rows take the kernel for more than 8."""
    extension, device = gpu.modules()
    weights = packed(37, 128, bits=8, dtype=dtype)
    rows = normal(3, M, 128, dtype=dtype)
    mapped = mx.contiguous(mx.moveaxis(rows, 0, axis))
    mx.eval(mapped, weights.scales, weights.biases, weights.words)

    def call(a):
        return extension.quantized_matmul(*weights[:4], a, weights.words, True, stream=device.gpu_stream())

    product = mx.vmap(call, in_axes=axis)(mapped)
    record = gpu.evaluate(product)
    assert record.reports == []
    assert_product(product, rows, weights)


def test_a_product_that_is_mapped_twice():
    extension, device = gpu.modules()
    weights, a = packed(19, 64), normal(2, 3, 4, 64)
    mx.eval(a, weights.scales, weights.biases, weights.words)

    def call(a):
        return extension.quantized_matmul(*weights[:4], a, weights.words, True, stream=device.gpu_stream())

    product = mx.vmap(mx.vmap(call, in_axes=1), in_axes=1)(a)
    record = gpu.evaluate(product)
    assert record.reports == []
    assert_product(product, a.transpose(1, 2, 0, 3), weights)
