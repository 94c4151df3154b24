"""MLX's operation, on a device without kernels of ours, agrees with the oracle in each case that it takes."""

import math

import mlx.core as mx
import numpy as np
import pytest

from ...support import native
from ...support.attention.check import compare_output, expected
from ...support.attention.mlx import attend, check, explain
from ...support.cases import DTYPE_IDS, DTYPES, normal, qkv, random_mask
from ...support.tolerance import GRADIENT_FLOOR, assert_close, to_float64


def float_mask(*shape: int, dtype: mx.Dtype = mx.float32, keep: float = 0.7) -> mx.array:
    return mx.where(random_mask(*shape, keep=keep), normal(*shape, seed=7), -mx.inf).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("L", "S"), [(33, 65), (33, 33), (65, 33), (9, 1), (1, 40), (1, 1)])
def test_none_and_causal(L, S, causal, dtype):
    check(*qkv(L=L, S=S, dtype=dtype), causal=causal)
    check(*qkv(L=L, S=S, dtype=dtype), mask="causal" if causal else None, scale=0.3)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (4, 1), (1, 1)])
def test_grouped_heads(heads, kv_heads, dtype):
    inputs = qkv(heads=heads, kv_heads=kv_heads, L=9, S=17, dtype=dtype)
    check(*inputs, causal=True)
    check(*inputs, mask=random_mask(heads, 9, 17))
    check(*inputs, mask=random_mask(2, 1, 9, 17), sinks=normal(heads, dtype=dtype, seed=5))


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (2, 1, 2), (1, 1)], ids=str)
def test_batch_axes(batch):
    inputs = qkv(batch=batch, L=9, S=17)
    check(*inputs)
    check(*inputs, causal=True)
    check(*qkv(batch=batch, L=17, S=9), causal=True)
    for axes in range(len(batch) + 1):
        shape = (*batch[axes:], 4, 9, 17)
        check(*inputs, mask=random_mask(*shape))
        check(*inputs, mask=float_mask(*shape), causal=True)


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize(
    "shape",
    [(), (1,), (17,), (9, 1), (9, 17), (1, 17), (4, 1, 17), (1, 9, 17), (1, 1, 1, 17), (3, 1, 9, 17),
     (3, 4, 1, 1), (1, 3, 1, 9, 17), (2, 1, 4, 9, 1), (1, 1, 1, 9, 17), (2, 3, 1, 1, 17)],
    ids=str,
)  # fmt: skip
def test_masks_that_broadcast(shape, kind):
    mask = random_mask(*shape) if kind == "bool" else float_mask(*shape)
    inputs = qkv(batch=(2, 3), L=9, S=17)
    check(*inputs, mask=mask)
    check(*inputs, mask=mask, causal=True)


@pytest.mark.parametrize("value", [True, False, 0.5, -math.inf], ids=str)
def test_a_mask_without_axes(value):
    check(*qkv(L=9, S=17), mask=mx.array(value))


HIDDEN = (0, 3, 8)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("sinks", [None, normal(4, dtype=mx.bfloat16, seed=5)], ids=["plain", "sinks"])
def test_rows_that_a_mask_hides_are_zero(sinks, kind, dtype):
    keep = mx.array(~np.isin(np.arange(9), HIDDEN))[:, None] & mx.ones((9, 17), mx.bool_)
    mask = keep if kind == "bool" else mx.where(keep, 0.0, -mx.inf).astype(dtype)
    options = {} if sinks is None else {"sinks": sinks.astype(dtype)}
    inputs = qkv(L=9, S=17, dtype=dtype)
    check(*inputs, mask=mask, **options)
    assert (to_float64(attend(*inputs, mask=mask, **options))[..., HIDDEN, :] == 0).all()


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_rows_that_a_mask_and_causality_hide_together(kind):
    """The mask hides the first half of the keys, causality the second half of the first rows."""
    keep = mx.arange(17) >= 9
    mask = keep if kind == "bool" else mx.where(keep, 0.0, -mx.inf)
    check(*qkv(L=17, S=17), mask=mask, causal=True)
    check(*qkv(L=30, S=17), mask=mask, causal=True, sinks=normal(4, seed=5))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("L", "S"), [(9, 17), (1, 40), (17, 9)])
def test_sinks(L, S, dtype):
    check(*qkv(L=L, S=S, dtype=dtype), sinks=2 * normal(4, dtype=dtype, seed=5), causal=True)


def test_rows_that_see_only_their_sink_are_zero():
    out = attend(*qkv(L=17, S=9), sinks=normal(4, seed=5), causal=True)
    assert (to_float64(out)[..., :8, :] == 0).all()


def test_transposed_strides():
    def swapped(x: mx.array, *axes: int) -> mx.array:
        return mx.contiguous(mx.swapaxes(x, *axes)).swapaxes(*axes)

    for L, S in ((9, 17), (17, 9)):
        inputs = qkv(batch=(2, 3), L=L, S=S)
        for axes in ((-1, -2), (-2, -3), (0, 1), (0, -3)):
            mask = swapped(random_mask(2, 3, 4, L, S), *axes)
            check(*(swapped(x, *axes) for x in inputs), causal=True)
            check(*(swapped(x, *axes) for x in inputs), mask=mask)


def test_a_window_without_an_effect():
    check(*qkv(L=9, S=17), window=17, causal=True)
    check(*qkv(L=9, S=17), window=(16, 8))
    check(*qkv(L=1, S=17), window=(-1, 0))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("other", DTYPES, ids=DTYPE_IDS)
def test_masks_and_sinks_of_another_dtype(other, dtype):
    """MLX takes them only if their dtype promotes to that of query."""
    inputs = qkv(L=9, S=17, dtype=dtype)
    check(*inputs, mask=float_mask(9, 17, dtype=other))
    check(*inputs, sinks=normal(4, dtype=other, seed=5))


def test_scores_beyond_float16():
    """Scores of 160 * 640, more than float16 holds, with weights that depend on their differences."""
    query, key = mx.full((1, 1, 2, 16), 40.0), mx.full((1, 1, 3, 16), 160.0)
    key[..., 0] = mx.array([160.0, 160.0625, 160.125])
    inputs = (query.astype(mx.float16), key.astype(mx.float16), normal(1, 1, 3, 16, dtype=mx.float16))
    check(*inputs, scale=1.0)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"mask": random_mask(512, 512)}], ids=str)
def test_memory_stays_below_the_predicted_bound(options, dtype):
    inputs = qkv(L=512, dtype=dtype)
    mx.eval(*inputs, *(x for x in options.values() if isinstance(x, mx.array)))
    bound = explain(*inputs, **options)["workspace_bytes"]
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    out = attend(*inputs, **options)
    mx.eval(out)
    assert mx.get_peak_memory() - before - out.nbytes <= bound


GRADIENTS = {
    "plain": {},
    "causal": {"causal": True},
    "bool mask": {"mask": random_mask(7, 5, keep=0.3)},
    "float mask": {"mask": float_mask(2, 1, 7, 5, keep=0.3), "causal": True},
}


@pytest.mark.parametrize("sinks", [[], [normal(4, seed=5)]], ids=["plain", "sinks"])
@pytest.mark.parametrize("options", GRADIENTS.values(), ids=GRADIENTS)
def test_gradients_are_those_of_the_reference(options, sinks):
    """More queries than keys: causality and the masks hide all keys from some rows."""
    inputs = (*qkv(L=7, S=5), *sinks)
    hides_rows = (expected(*inputs[:3], **options).lse == -np.inf).any()
    assert hides_rows == (len(options) > 0)

    def loss(*arrays: mx.array, reference: bool) -> mx.array:
        extra = {"sinks": arrays[3], **options} if sinks else options
        if reference:
            out = native.attention_reference(*arrays[:3], **extra)[0]
        else:
            out = attend(*arrays[:3], **extra)
        return (out * normal(*out.shape, seed=11)).sum()

    ours, reference = (
        mx.grad(lambda *x, r=r: loss(*x, reference=r), argnums=tuple(range(len(inputs))))(*inputs)
        for r in (False, True)
    )
    for grad, want, name in zip(ours, reference, ("dQ", "dK", "dV", "dsinks"), strict=False):
        exact = to_float64(want)
        assert_close(grad, exact, floor=GRADIENT_FLOOR[mx.float32] * np.abs(exact).max(), what=name)


def test_vmap():
    q, k, v = qkv(batch=(3, 2), L=9, S=7)
    mask = float_mask(3, 2, 1, 9, 7, keep=0.3)
    mapped = mx.vmap(lambda *x: attend(*x[:3], mask=x[3]))(q, k, v, mask)
    compare_output(mapped, q, k, v, mask=mask)
